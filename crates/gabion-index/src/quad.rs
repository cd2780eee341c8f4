//! Buckets of two cache lines: four entries with values of two words, and their tokens.
//!
//! ```text
//! 0        8                        32                       56       64
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! | tokens |  key   |      value      |  key   |      value      |   0    |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! |  key   |      value      |  key   |      value      |   0    |   0    |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! 64                       88                       112              128
//! ```
//!
//! As the buckets of the Level hashing slides, these have four slots for items of several words. No
//! entry lies across two lines. Those of the second line are persisted before their token, those of
//! the first line with it.

use std::ops::Range;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64};

use crate::bucket::{Bucket, Entry, PairFlush};
use crate::line::LINE_BYTES;

/// Slots of the bucket, and of each of its lines.
const SLOTS: usize = 4;
const SLOTS_OF_LINE: usize = 2;

const IN_FIRST: Range<usize> = 0..SLOTS_OF_LINE;
const IN_SECOND: Range<usize> = SLOTS_OF_LINE..SLOTS;

media_struct! {
    /// A bucket.
    pub struct Quad {
        tokens: PAtomicU64,
        first: [WidePair; SLOTS_OF_LINE],
        unused: PAtomicU64,
        second: [WidePair; SLOTS_OF_LINE],
        unused_too: [PAtomicU64; 2],
    }

    /// A key and a value of two words.
    pub struct WidePair {
        key: PAtomicU64,
        value: [PAtomicU64; 2],
    }
}

const _: () = {
    assert!(size_of::<Quad>() as u64 == 2 * LINE_BYTES);
    assert!(std::mem::offset_of!(Quad, tokens) == 0);
    assert!(std::mem::offset_of!(Quad, first) == 8);
    assert!(std::mem::offset_of!(Quad, second) as u64 == LINE_BYTES);
};

impl Entry<[u64; 2]> for WidePair {
    #[inline]
    fn key(&self) -> &PAtomicU64 {
        &self.key
    }

    #[inline]
    fn value(&self) -> &[PAtomicU64] {
        &self.value
    }
}

impl Bucket for Quad {
    const SLOTS: usize = SLOTS;
    const BYTES: u64 = 2 * LINE_BYTES;
    type Value = [u64; 2];
    type Pair = WidePair;

    #[inline]
    fn tokens_word(&self) -> &PAtomicU64 {
        &self.tokens
    }

    #[inline]
    fn pair(&self, slot: usize) -> &WidePair {
        match slot < SLOTS_OF_LINE {
            true => &self.first[slot],
            false => &self.second[slot - SLOTS_OF_LINE],
        }
    }

    /// The second line is read if the first one does not have the key, and the second has entries.
    #[inline]
    fn touch(&self, medium: &Medium, key: Option<u64>) {
        if !medium.is_watched() {
            return;
        }
        medium.touch(&self.tokens);
        let Some(key) = key else { return };
        let tokens = self.tokens();
        if self.keys_that_are(key, IN_FIRST) & tokens == 0 && tokens >> SLOTS_OF_LINE != 0 {
            medium.touch(&self.second);
        }
    }

    #[inline]
    fn matches(&self, key: u64) -> u64 {
        let tokens = self.tokens();
        match self.keys_that_are(key, IN_FIRST) & tokens {
            0 if tokens >> SLOTS_OF_LINE != 0 => self.keys_that_are(key, IN_SECOND) & tokens,
            found => found,
        }
    }

    #[inline]
    fn flush_of(slot: usize) -> PairFlush {
        match slot < SLOTS_OF_LINE {
            true => PairFlush::WithToken,
            false => PairFlush::Before,
        }
    }

    fn append_image(entries: &[(u64, [u64; 2])], bytes: &mut Vec<u8>) {
        let tokens: u64 = (1 << entries.len()) - 1;
        let mut words = [0; 16];
        words[0] = tokens;
        for (slot, (key, [low, high])) in entries.iter().enumerate() {
            let at = 1 + 3 * slot + slot / SLOTS_OF_LINE;
            words[at..at + 3].copy_from_slice(&[*key, *low, *high]);
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gabion_media::pmem::trace::{TraceEvent, TraceStep, Watcher};
    use gabion_media::pmem::{POff, Pool, PoolOptions, ROOT_HINT};
    use parking_lot::Mutex;

    use super::*;
    use crate::bucket::Value;

    /// The lines that were loaded.
    #[derive(Default)]
    struct Loads(Mutex<Vec<u64>>);

    impl Watcher for Loads {
        fn event(&self, event: TraceEvent<'_>) {
            if let TraceStep::Load { offset, len } = event.step {
                let lines = offset / LINE_BYTES..=(offset + len - 1) / LINE_BYTES;
                self.0.lock().extend(lines);
            }
        }
    }

    fn quad(loads: &Arc<Loads>) -> (Pool, POff<Quad>) {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            watcher: Some(loads.clone()),
            ..PoolOptions::default()
        });
        let pool = pool.expect("memory");
        let space = pool.alloc_aligned(Quad::BYTES, Quad::BYTES, ROOT_HINT);
        let at = space.expect("space").offset();
        (pool, at)
    }

    fn value(word: u64) -> [u64; 2] {
        Value::of_word(word)
    }

    #[test]
    fn a_bucket_follows_its_entries() {
        let (pool, at) = quad(&Arc::default());
        let mut bytes = Vec::new();
        Quad::append_image(
            &[(1, value(10)), (2, value(20)), (3, value(30))],
            &mut bytes,
        );
        pool.write(at.raw(), &bytes);
        let bucket = pool.at(at);
        assert_eq!(bucket.entry_count(), 3);
        let entries = [(1, value(10)), (2, value(20)), (3, value(30))];
        assert_eq!(bucket.entries().collect::<Vec<_>>(), entries);
        assert_eq!(bucket.free_slot(), Some(3));
        assert_eq!(bucket.exchange(&pool, 0, 3, value(11)), value(10));
        assert_eq!((bucket.find(1), bucket.free_slot()), (Some(3), Some(0)));
        bucket.put(&pool, 0, 4, value(40));
        assert_eq!((bucket.free_slot(), bucket.get(4)), (None, Some(value(40))));
        bucket.vacate(&pool, 2);
        assert_eq!((bucket.get(3), bucket.free_slot()), (None, Some(2)));
        bucket.put_among(&pool, 2, 5, value(50));
        assert_eq!(bucket.get_among(5), Some(value(50)));
        assert_eq!(bucket.remove_among(&pool, 2), value(50));
        assert_eq!(bucket.remove(&pool, 1), value(20));
        assert_eq!((bucket.entry_count(), bucket.get(2)), (2, None));
        assert!(bucket.is_sound());
        // The words behind the entries of either line stay as they were.
        let mut bytes = [0; size_of::<Quad>()];
        pool.read(at.raw(), &mut bytes);
        assert!(
            bytes[56..64]
                .iter()
                .chain(&bytes[112..])
                .all(|byte| *byte == 0)
        );
    }

    /// Pairs of the first line become durable with their token, those of the second before it.
    #[test]
    fn each_pair_lies_in_one_line() {
        let (pool, at) = quad(&Arc::default());
        let bucket = pool.at(at);
        for slot in 0..SLOTS {
            assert_eq!(bucket.pair_flush(&pool, slot), Quad::flush_of(slot));
        }
        assert_eq!(Quad::flush_of(1), PairFlush::WithToken);
        assert_eq!(Quad::flush_of(2), PairFlush::Before);
    }

    /// The second line is read only when a key is looked for that the first one does not have.
    #[test]
    fn the_second_line_is_read_at_need() {
        let loads = Arc::new(Loads::default());
        let (pool, at) = quad(&loads);
        let bucket = pool.at(at);
        let first = at.raw() / LINE_BYTES;
        let read = |key| {
            loads.0.lock().clear();
            bucket.touch(&pool, key);
            loads.0.lock().clone()
        };
        bucket.put(&pool, 0, 1, value(10));
        assert_eq!((read(Some(1)), read(Some(2))), (vec![first], vec![first]));
        bucket.put(&pool, 2, 2, value(20));
        assert_eq!((read(Some(1)), read(None)), (vec![first], vec![first]));
        assert_eq!(read(Some(2)), [first, first + 1]);
        assert_eq!(read(Some(3)), [first, first + 1]);
    }

    #[test]
    fn a_value_in_part_stands_for_no_word() {
        let (old, new) = (value(7), value(9));
        assert_eq!((new.word(), new.is_whole()), (9, true));
        for torn in [[new[0], old[1]], [old[0], new[1]]] {
            assert!(
                !torn.is_whole() && ![7, 9].contains(&torn.word()),
                "{torn:?}"
            );
        }
    }
}
