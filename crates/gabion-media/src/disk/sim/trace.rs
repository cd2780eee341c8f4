//! A trace of the reads of a simulated disk, in their order.
//!
//! Reads of a real disk overlap when several are announced before one of them is waited for. That
//! is a matter of order, which a trace shows without a clock.

use std::ops::Range;

/// One step of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// It said that it will read bytes of a file: a disk can read them from here on.
    Announced {
        /// Which file: a number that no other file has.
        file: u64,
        /// The bytes.
        place: Range<u64>,
    },
    /// It read bytes of a file, and waited for them.
    Read {
        /// Which file.
        file: u64,
        /// The bytes.
        place: Range<u64>,
    },
}

impl ReadStep {
    /// Whether all bytes that the step read are in places that the steps `before` announced. True
    /// for steps that read nothing.
    pub fn was_announced(&self, before: &[ReadStep]) -> bool {
        let ReadStep::Read {
            file: of,
            place: read,
        } = self
        else {
            return true;
        };
        let mut places: Vec<&Range<u64>> = before
            .iter()
            .filter_map(|step| match step {
                ReadStep::Announced { file, place } if file == of => Some(place),
                _ => None,
            })
            .collect();
        places.sort_by_key(|place| place.start);
        let covered = places.iter().fold(read.start, |end, place| {
            if place.start <= end {
                end.max(place.end)
            } else {
                end
            }
        });
        covered >= read.end
    }
}
