//! Expiry times, as other languages pass them.

use std::time::{Duration, UNIX_EPOCH};

use gabion::Expiry;

/// The expiry of a number of milliseconds: since 1970 if `is_absolute`, else from now on.
pub fn expiry(ms: u64, is_absolute: bool) -> Expiry {
    let since = Duration::from_millis(ms);
    // Beyond what the system's time reaches there is no end that anybody sees.
    match is_absolute.then(|| UNIX_EPOCH.checked_add(since)).flatten() {
        Some(at) => Expiry::At(at),
        None => Expiry::After(since),
    }
}
