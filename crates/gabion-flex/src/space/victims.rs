//! Chooses the segments that a garbage collection empties.
//!
//! # Idea
//! Emptying a segment of which the part `u` is live costs the writing of `u`, and wins `1 - u`. To
//! take the one with the least that is live is best for this time only: what is written over often
//! is garbage soon by itself, so a young segment is worth more when it is left alone for a while,
//! and what has been live for long will be for long, so its garbage has to be won by moving it
//! sooner or later. Therefore a segment is taken by what it wins for each byte that it costs, times
//! the square root of its age: see [`worth`].
//!
//! The age is that of the data, as it was written by users: moved data keeps it. It is counted in
//! segments that were begun since, and not kept on the medium: when a space is opened, a segment is
//! as old as its generation says.
//!
//! # Bound
//! The capacity leaves 2 of 32 parts and the reserve unused, so when segments run out there is one
//! with a sixteenth of garbage or more, and as long as there is, no other is taken: no round costs
//! more than sixteen times what it wins.
//!
//! # Deviations from the paper
//! The paper takes those with the least live bytes. With updates by Zipf's law that fill 85 % of
//! a space, the root of the age saves a quarter of all bytes that are written: `docs/decisions/032`
//! has the figures, and what the age itself or no age does.
//!
//! Source: Rosenblum, Ousterhout: The Design and Implementation of a Log-Structured File System,
//! section 3.6, whose policy weighs with the age itself.

use super::segments::{SegmentState, Segments};

/// What is asked of a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct VictimQuery {
    /// Segments, at most.
    pub(super) segments: u32,
    /// Live bytes of each, at most.
    pub(super) live_max: u32,
    /// Bytes of garbage that are enough.
    pub(super) garbage: u64,
    /// Bytes that can be moved before segments are free again: none that has more can be emptied.
    pub(super) movable: u64,
}

/// How much it is worth to empty a segment now: garbage won for each live byte that must be moved,
/// times the square root of the age.
fn worth(live: u32, room: u32, age: u32) -> f64 {
    let garbage = f64::from(room - live.min(room));
    garbage * f64::from(age).sqrt() / f64::from(live.max(1))
}

/// The segments to empty, the most worthy first, for which `staged` tells the bytes that no extent
/// refers to yet.
pub(super) fn choose(
    segments: &Segments,
    room: u32,
    staged: impl Fn(u32) -> u64,
    wanted: VictimQuery,
) -> Vec<u32> {
    let is_candidate = |number: u32, segment: &super::segments::Segment| {
        matches!(segment.state, SegmentState::Full | SegmentState::Left)
            && segment.valid <= wanted.live_max
            && u64::from(segment.valid) <= wanted.movable
            && !segment.damaged
            && staged(number) == 0
    };
    let mut candidates: Vec<(f64, u32, u32)> = segments
        .iter()
        .filter(|(number, segment)| is_candidate(*number, segment))
        .map(|(number, segment)| {
            let age = segments.age_of(segment);
            (worth(segment.valid, room, age), segment.valid, number)
        })
        .collect();
    let cheap = room - room.div_ceil(16);
    if candidates.iter().any(|(_, live, _)| *live <= cheap) {
        candidates.retain(|(_, live, _)| *live <= cheap);
    }
    candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    let mut won = 0;
    let most = wanted.segments.max(1) as usize;
    let is_needed = |(_, live, _): &(f64, u32, u32)| {
        let goes_on = won < wanted.garbage;
        won += u64::from(room - *live);
        goes_on
    };
    let chosen = candidates.into_iter().take(most).take_while(is_needed);
    chosen.map(|(_, _, number)| number).collect()
}

/// Some segments, for asking whether one is among them.
#[derive(Debug, Default)]
pub(super) struct SegmentSet(Vec<bool>);

impl SegmentSet {
    pub(super) fn new(segments: &[u32]) -> SegmentSet {
        let mut set = Vec::new();
        for segment in segments {
            let index = *segment as usize;
            if index >= set.len() {
                set.resize(index + 1, false);
            }
            set[index] = true;
        }
        SegmentSet(set)
    }

    #[inline]
    pub(super) fn contains(&self, segment: u32) -> bool {
        self.0.get(segment as usize).is_some_and(|is_in| *is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Geometry;
    use super::super::segments::SegmentClass;
    use super::*;
    use crate::Extent;

    const ALL: VictimQuery = VictimQuery {
        segments: 100,
        live_max: u32::MAX,
        garbage: u64::MAX,
        movable: u64::MAX,
    };

    /// Full segments with so many live bytes each, the oldest first.
    fn segments(live: &[u64]) -> (Segments, u32) {
        let geometry = Geometry::new(65536, 256);
        let room = geometry.room();
        let mut segments = Segments::new(geometry, Some(1001 * 65536), 8);
        for live in live {
            let (number, _) = segments.take(SegmentClass::User).unwrap();
            segments.add(number, room.into());
            segments.fill(number);
            segments.release(&Extent {
                offset: 0,
                len: u64::from(room) - live,
                address: geometry.address(number, 0),
            });
        }
        (segments, room)
    }

    fn chosen(segments: &(Segments, u32), wanted: VictimQuery) -> Vec<u32> {
        choose(&segments.0, segments.1, |_| 0, wanted)
    }

    #[test]
    fn of_two_as_old_the_emptier_one_goes_first_and_of_two_as_full_the_older_one() {
        assert_eq!(chosen(&segments(&[9_000, 9_000, 9_000]), ALL), [0, 1, 2]);
        assert_eq!(chosen(&segments(&[60_000, 9_000]), ALL), [1, 0]);
        assert_eq!(chosen(&segments(&[9_000, 60_000, 8_999]), ALL)[2], 1);
    }

    #[test]
    fn an_old_one_goes_before_an_emptier_young_one() {
        // One of ages 101 and 1, with a third and a half of garbage.
        let mut live = vec![63_000; 101];
        (live[0], live[100]) = (40_000, 30_000);
        assert_eq!(chosen(&segments(&live), ALL), [0, 100]);
        // Nothing to move is always best.
        live[100] = 1;
        assert_eq!(chosen(&segments(&live), ALL), [100, 0]);
    }

    #[test]
    fn none_costs_sixteen_times_what_it_wins_as_long_as_there_is_a_cheaper_one() {
        let mut live = vec![62_000; 1000];
        live[999] = 58_000;
        assert_eq!(chosen(&segments(&live), ALL), [999]);
        live[999] = 62_000;
        assert_eq!(chosen(&segments(&live), ALL).len(), 100);
    }

    #[test]
    fn the_choice_is_no_larger_than_wanted() {
        let some = segments(&[10_000, 20_000, 30_000, 40_000, 50_000]);
        let count = |wanted| chosen(&some, wanted).len();
        assert_eq!(count(ALL), 5);
        assert_eq!(count(VictimQuery { segments: 2, ..ALL }), 2);
        assert_eq!(count(VictimQuery { segments: 0, ..ALL }), 1);
        let garbage = u64::from(some.1 - 10_000) + 1;
        assert_eq!(count(VictimQuery { garbage, ..ALL }), 2);
        assert_eq!(
            count(VictimQuery {
                live_max: 30_000,
                ..ALL
            }),
            3
        );
        assert_eq!(
            count(VictimQuery {
                movable: 29_999,
                ..ALL
            }),
            2
        );
        let none = choose(&some.0, some.1, |number| u64::from(number != 3), ALL);
        assert_eq!(none, [3]);
    }

    #[test]
    fn moved_data_is_as_old_as_it_was() {
        let (mut segments, room) = segments(&[60_000; 50]);
        let age_of = |segments: &mut Segments, number| {
            let segment = *segments.get_mut(number);
            segments.age_of(&segment)
        };
        assert_eq!(age_of(&mut segments, 9), 41);
        let (into, _) = segments.take(SegmentClass::Moved).unwrap();
        assert_eq!(age_of(&mut segments, into), 1);
        segments.add(into, room.into());
        for from in [9, 19] {
            let written = segments.written_in(from);
            segments.note_written(into, u64::from(room) / 2, written);
        }
        assert_eq!(age_of(&mut segments, into), 37);
        // A new use is new.
        segments.fill(into);
        segments.release(&Extent {
            offset: 0,
            len: room.into(),
            address: 65536 * u64::from(into),
        });
        segments.bury();
        let again =
            std::iter::from_fn(|| segments.take(SegmentClass::User)).find(|(own, _)| *own == into);
        assert!(again.is_some());
        assert_eq!(segments.written_in(into), segments.get_mut(into).generation);
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let set = SegmentSet::new(&[3, 9]);
        let found: Vec<u32> = (0..20).filter(|segment| set.contains(*segment)).collect();
        assert_eq!(found, [3, 9]);
        assert!(!SegmentSet::default().contains(0));
    }
}
