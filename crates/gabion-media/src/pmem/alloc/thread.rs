//! Numbers of threads: a small one that is reused, to choose a heap, and one that never is.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Numbers of threads that ended, free to be used again.
static FREE: Mutex<(u32, BTreeSet<u32>)> = Mutex::new((0, BTreeSet::new()));

/// The next number that is never used again.
static NEXT: AtomicU64 = AtomicU64::new(0);

struct Numbers {
    small: u32,
    unique: u64,
}

impl Numbers {
    fn new() -> Numbers {
        let mut free = FREE.lock();
        let small = free.1.pop_first().unwrap_or_else(|| {
            free.0 += 1;
            free.0 - 1
        });
        // ORDER: Relaxed: only uniqueness counts.
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        Numbers { small, unique }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        FREE.lock().1.insert(self.small);
    }
}

thread_local! {
    static NUMBERS: Numbers = Numbers::new();
}

/// The thread's small number: smaller than the number of threads that ever ran at the same time.
pub(crate) fn small_number() -> u32 {
    // While the thread's own variables are destroyed it shares the first number.
    NUMBERS.try_with(|numbers| numbers.small).unwrap_or(0)
}

/// The most threads that ever ran at the same time and had numbers.
pub(crate) fn most() -> u32 {
    FREE.lock().0
}

/// A number that no other thread of the process ever has.
pub(crate) fn unique_number() -> u64 {
    NUMBERS
        .try_with(|numbers| numbers.unique)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_numbers_are_never_reused() {
        let mut seen = BTreeSet::from([unique_number()]);
        for _ in 0..20 {
            let other = std::thread::spawn(unique_number).join().unwrap();
            assert!(seen.insert(other), "{other} twice");
        }
        assert_eq!(small_number(), small_number());
    }
}
