//! Expiry times, as other languages pass them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A moment in milliseconds since 1970; -1 for none.
pub fn unix_millis(moment: Option<SystemTime>) -> i64 {
    let since = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    since.map_or(-1, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
