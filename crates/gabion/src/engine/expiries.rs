//! When the entries of a table or a space expire, as far as it is known without reading them.
//!
//! # Idea
//! The moments by which each eighth of them has expired tell at any moment about how many have, and
//! exactly whether all have, or none. They are those of a sample: every entry up to some number,
//! then every second one, and so on, but for the first and the last moment, which are exact.

use crate::expiry::UnixMillis;

/// Moments in a sample, at most.
const SAMPLE_MAX: usize = 2048;

/// Moments that are kept of a table: the first one, that of each eighth, and the last one.
pub(crate) const MARKS: usize = 9;

/// What has expired of so many bytes is worth a compaction, or a sweep, when it is one in so many.
const WORTH_ONE_IN: u64 = 8;

/// Whether so many expired bytes among others are worth writing these anew.
pub(crate) fn is_worth(expired: u64, bytes: u64) -> bool {
    expired > 0 && expired >= bytes / WORTH_ONE_IN
}

/// The entries of a table that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiries {
    /// How many there are.
    pub(crate) entries: u64,
    /// By when each eighth of them has expired, ascending.
    pub(crate) marks: [UnixMillis; MARKS],
}

impl Expiries {
    /// Whether numbers that were read can be those of a table of so many entries.
    pub(crate) fn is_sound(&self, entries: u64) -> bool {
        (1..=entries).contains(&self.entries) && self.marks.is_sorted()
    }

    /// About how many have expired by a moment: none before the first has, and all only if all
    /// have.
    pub(crate) fn expired_by(&self, moment: UnixMillis) -> u64 {
        let passed = self.marks.partition_point(|mark| *mark <= moment);
        match passed {
            0 => 0,
            MARKS => self.entries,
            _ => {
                let eighths = passed as u64 - 1;
                (self.entries * eighths / (MARKS as u64 - 1)).max(1)
            }
        }
    }

    /// Whether all have expired by a moment.
    pub(crate) fn have_all_expired_by(&self, moment: UnixMillis) -> bool {
        self.marks.last().is_some_and(|last| *last <= moment)
    }
}

/// Sees the moments of a table's entries, in their order.
#[derive(Clone, Debug)]
pub(crate) struct ExpirySample {
    entries: u64,
    first: UnixMillis,
    last: UnixMillis,
    /// One moment of so many is taken.
    every: u64,
    taken: Vec<UnixMillis>,
}

impl Default for ExpirySample {
    fn default() -> ExpirySample {
        ExpirySample {
            entries: 0,
            first: UnixMillis::MAX,
            last: 0,
            every: 1,
            taken: Vec::new(),
        }
    }
}

impl ExpirySample {
    /// Takes the moment of the next entry that expires.
    pub(crate) fn add(&mut self, moment: UnixMillis) {
        if self.entries.is_multiple_of(self.every) {
            if self.taken.len() == SAMPLE_MAX {
                let mut number = 0;
                self.taken.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.every *= 2;
            }
            if self.entries.is_multiple_of(self.every) {
                self.taken.push(moment);
            }
        }
        self.entries += 1;
        self.first = self.first.min(moment);
        self.last = self.last.max(moment);
    }

    /// How many of those in the sample have expired by a moment, and how many there are.
    pub(crate) fn expired_by(&self, moment: UnixMillis) -> (u64, u64) {
        let expired = self.taken.iter().filter(|own| **own <= moment);
        (expired.count() as u64, self.taken.len() as u64)
    }

    /// What it has seen; `None` for no entry that expires.
    pub(crate) fn expiries(&self) -> Option<Expiries> {
        let mut taken = self.taken.clone();
        taken.sort_unstable();
        let most = taken.len().checked_sub(1)?;
        let mut marks = [0; MARKS];
        for (eighth, mark) in marks.iter_mut().enumerate() {
            let at = (most * eighth).div_ceil(MARKS - 1);
            *mark = taken.get(at).copied().unwrap_or(self.last);
        }
        let [first, .., last] = &mut marks;
        (*first, *last) = (self.first, self.last);
        Some(Expiries {
            entries: self.entries,
            marks,
        })
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::seeded::SeededRng;

    use super::*;

    fn of(moments: impl Iterator<Item = UnixMillis>) -> Option<Expiries> {
        let mut sample = ExpirySample::default();
        moments.for_each(|moment| sample.add(moment));
        assert!(sample.taken.len() <= SAMPLE_MAX);
        sample.expiries()
    }

    #[test]
    fn few_entries_are_known_exactly_at_both_ends() {
        assert_eq!(of(std::iter::empty()), None);
        for count in 1..20 {
            let found = of((1..=count).rev()).unwrap();
            assert!(found.is_sound(count) && !found.is_sound(count - 1));
            assert_eq!(found.expired_by(0), 0);
            assert_eq!(found.expired_by(count), count);
            assert!(found.have_all_expired_by(count) && !found.have_all_expired_by(count - 1));
            if count > 1 {
                let before = found.expired_by(count - 1);
                assert!((1..count).contains(&before), "{before} of {count}");
            }
        }
    }

    /// Moments far apart do not hide the many that are near.
    #[test]
    fn estimates_are_within_an_eighth_and_a_half() {
        let mut random = SeededRng::new(7);
        for count in [100, 2_048, 5_000, 100_000] {
            let mut moments: Vec<UnixMillis> = (0..count)
                .map(|_| match random.below(10) {
                    0 => 1 << 40,
                    _ => 1_000 + random.below(1_000).pow(2),
                })
                .collect();
            let found = of(moments.iter().copied()).unwrap();
            moments.sort_unstable();
            for moment in (0..1_100_000).step_by(9_973) {
                let exact = moments.partition_point(|own| *own <= moment) as u64;
                let told = found.expired_by(moment);
                let off = told.abs_diff(exact);
                assert!(off <= count * 3 / 16 + 1, "{told} for {exact} of {count}");
            }
        }
    }
}
