//! The index of a space that was opened: made anew by a look at a pair here and there.
//!
//! # Idea (paper, section 5)
//! The space marks where pairs begin (P3 of the partition). So it is enough to look for a mark at
//! every stride and to read the key that stands there: what lies between two of them is an
//! interval, though a large one, which its first reader cuts. Several threads look, each in a part
//! of the space.

use std::sync::Arc;

use super::Partition;
use crate::engine::flexdb::index::{IntervalIndex, NewInterval};
use crate::engine::flexdb::interval::pair_head;
use crate::log::MalformedPayload;
use crate::threads::side_by_side;
use crate::{Error, Result};

/// Bytes between the places at which a recovery looks for a pair (the paper's stride), at least and
/// at most. Who first reads an interval after that reads so much.
const STRIDE_BYTES_MIN: u64 = 32 << 10;
const STRIDE_BYTES_MAX: u64 = 128 << 10;

/// Places at which a recovery looks, as long as the stride can grow: each is a read, of which a
/// drive does some 100,000 in a second.
const LOOKS_MAX: u64 = 128 << 10;

/// Bytes of a space that are worth a thread of their own in a recovery.
const THREAD_BYTES: u64 = 16 << 20;

/// Most threads of a recovery. They wait for the medium, which takes many reads at a time.
const THREADS_MAX: u64 = 32;

/// First bytes that a recovery reads of a pair: enough for most keys.
const FRONT_BYTES: usize = 128;

/// Where pairs begin, and their keys.
type Anchors = Vec<(u64, Vec<u8>)>;

/// The stride in a space of so many bytes.
fn stride_of(len: u64) -> u64 {
    let wanted = len.div_ceil(LOOKS_MAX);
    wanted.clamp(STRIDE_BYTES_MIN, STRIDE_BYTES_MAX)
}

impl Partition {
    /// Looks for a pair at every stride and makes intervals of what lies between.
    pub(super) fn rebuild(&mut self) -> Result<()> {
        let len = self.space.len();
        let threads = (len / THREAD_BYTES).clamp(1, THREADS_MAX);
        let part = len.div_ceil(threads).max(1);
        let parts: Vec<Result<Anchors>> = side_by_side(0..threads, |number| {
            self.anchors(number * part, ((number + 1) * part).min(len))
        });
        let mut intervals = Vec::new();
        let (mut last, mut from) = (NewInterval::first(), 0);
        for anchors in parts {
            for (offset, key) in anchors? {
                if offset == 0 {
                    continue;
                }
                if key <= last.key {
                    return Err(self.corrupt(offset, "a key is not above those before it"));
                }
                let next = NewInterval {
                    key,
                    ..NewInterval::first()
                };
                last.len = offset - from;
                intervals.push(std::mem::replace(&mut last, next));
                from = offset;
            }
        }
        last.len = len - from;
        intervals.push(last);
        self.index = Arc::new(IntervalIndex::new(&intervals, self.cache.cached_bytes()));
        Ok(())
    }

    /// Where pairs begin, and their keys: the first one behind each stride.
    fn anchors(&self, from: u64, to: u64) -> Result<Anchors> {
        let mut anchors = Vec::new();
        let stride = stride_of(self.space.len());
        let mut at = from;
        while at < to {
            let offset = match self.space.next_mark(at) {
                Ok(Some(offset)) if offset < to => offset,
                Ok(_) => break,
                // A leaf of the space's tree is damaged. It goes on behind it.
                Err(gabion_flex::Error::Corruption { .. }) => {
                    at += stride;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match self.key_at(offset) {
                Ok(key) => anchors.push((offset, key)),
                // The damage is told when the pair is read; its interval only is longer.
                Err(Error::Corruption { .. }) => {}
                Err(error) => return Err(error),
            }
            at = offset + stride;
        }
        Ok(anchors)
    }

    fn key_at(&self, offset: u64) -> Result<Vec<u8>> {
        let mut front = vec![0; FRONT_BYTES];
        let read = self.space.read_at(offset, &mut front)?;
        front.truncate(read);
        let malformed = |malformed: MalformedPayload| self.corrupt(offset, malformed.what);
        let (head, key, _) = pair_head(&front).map_err(malformed)?;
        let end = head.saturating_add(key);
        if end > front.len() {
            if end as u64 > self.space.len() - offset {
                return Err(self.corrupt(offset, "a key reaches beyond the space"));
            }
            front.resize(end, 0);
            self.space.read_at(offset, &mut front)?;
        }
        Ok(front[head..end].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_space_has_no_more_places_to_look_at_than_a_middling_one() {
        for (len, stride) in [
            (0, 32 << 10),
            (4 << 30, 32 << 10),
            (8 << 30, 64 << 10),
            (10 << 30, 80 << 10),
            (16 << 30, 128 << 10),
            (1 << 40, 128 << 10),
        ] {
            assert_eq!(stride_of(len), stride, "{len} bytes");
        }
    }
}
