//! Random numbers for harmless choices; not for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// A random number: a step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn number() -> u64 {
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// A random number below `end`; 0 if that is 0.
pub(crate) fn below(end: u64) -> u64 {
    let product = u128::from(number()) * u128::from(end);
    u64::try_from(product >> u64::BITS).unwrap_or_default()
}

/// Brings items into an order by chance (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T]) {
    for end in (1..items.len()).rev() {
        let other = below(end as u64 + 1);
        items.swap(end, usize::try_from(other).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_below_the_end_come() {
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[usize::try_from(below(10)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(below(0), 0);
    }
}
