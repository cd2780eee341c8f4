//! Creation and recovery of a table, at a cost that does not depend on its size.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{BlockClaim, Medium, PAtomicU64, POff, Pool, PoolOptions, Reachable};
use parking_lot::Mutex;

use super::Clevel;
use super::layout::{BUCKET_BYTES, Bucket, LEVELS, SlotWord, TableState};
use super::places::{BITS_MAX, BITS_MIN, Context, homes, planned_bits};
use crate::index::{IndexPlan, root_of};
use crate::pending::PendingCells;
use crate::root::{ROOT_BYTES, create, expect_room, find, part};
use crate::{Error, Item, Result, Seed};

/// The hint of an item: its hash with the lowest bit set, by which no level chooses a bucket. That
/// of a level: the offset of the word that refers to it, which is even.
#[inline]
pub(super) fn item_hint(hash: u64) -> u64 {
    hash | 1
}

/// What recovery of the pool asks: whether a table durably refers to a block. An item that was only
/// announced is not referred to: its announcement is taken back here, durably, as nobody else will
/// ask for it.
// ORDER: Relaxed throughout: nobody else has the pool while it is opened.
fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    if claim.hint & 1 == 0 {
        let word: Option<&PAtomicU64> = medium.try_at(POff::new(claim.hint));
        let word = word.map(|word| word.load(medium, Ordering::Relaxed));
        return word == Some(claim.block.raw());
    }
    let state: Option<&TableState> = medium.try_at(POff::new(root_of(medium) + ROOT_BYTES));
    let Some(state) = state else { return false };
    medium.touch(state);
    let mut is_entry = false;
    for (bits, level) in (0..).zip(&state.levels).skip(BITS_MIN as usize) {
        let level = level.peek(Ordering::Relaxed);
        if level == 0 {
            continue;
        }
        for number in homes(bits, claim.hint) {
            let at = level.wrapping_add(number.wrapping_mul(BUCKET_BYTES));
            let bucket: Option<&Bucket> = medium.try_at(POff::new(at));
            for slot in bucket.iter().flat_map(|bucket| &bucket.slots) {
                let word = SlotWord(slot.load(medium, Ordering::Relaxed));
                if word.item() != claim.block.raw() {
                    continue;
                }
                if word.is_announced() {
                    slot.store(medium, SlotWord::FREE.0, Ordering::Relaxed);
                    // DURABLE: with what recovery decides on the claim, before the intent goes.
                    medium.flush(slot);
                } else {
                    is_entry = true;
                }
            }
        }
    }
    is_entry
}

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    const MAGIC: u64 = u64::from_le_bytes(if K::IS_WORD {
        *b"GbClevW1"
    } else {
        *b"GbClevS1"
    });

    /// Options of pools for such tables: the layout id, and how recovery finds what is in use.
    /// Whoever makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: Self::MAGIC,
            reachable: Reachable::ask_fn(is_referenced),
            ..PoolOptions::default()
        }
    }

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space for the planned table: nothing has changed then.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let bits = planned_bits(plan.capacity, USED);
        let levels = [bits, bits + 1].map(|bits| part(BUCKET_BYTES << bits, BUCKET_BYTES));
        expect_room(pool, size_of::<TableState>() as u64, levels)?;
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let words = |_| vec![Self::MAGIC, seed, plan.capacity];
        let root = create(pool, size_of::<TableState>() as u64, words)?;
        Self::with(pool, root, seed, plan.capacity)
    }

    /// Finds the table that is the root of `pool`.
    ///
    /// # Errors
    /// No such table there, or a damaged one.
    pub fn open(pool: &Pool) -> Result<Self> {
        let (root, [_, seed, capacity, ..]) = find(pool, Self::MAGIC)?;
        Self::with(pool, root, seed, capacity)
    }

    fn with(pool: &Pool, root: u64, seed: u64, capacity: u64) -> Result<Self> {
        let this = Clevel {
            medium: Medium::clone(pool),
            seed: Seed::new(seed),
            context: AtomicU64::new(0),
            levels: [const { AtomicU64::new(0) }; LEVELS],
            pending: PendingCells::new(),
            growth: Mutex::default(),
            moving: Mutex::default(),
            root,
            pool: pool.clone(),
            keys: PhantomData,
        };
        this.recover(capacity)?;
        Ok(this)
    }

    /// Finds the levels, adds those that a new table lacks, and ends the move of a bucket.
    fn recover(&self, capacity: u64) -> Result<()> {
        let _within = self.pool.write_guard();
        let planned = planned_bits(capacity, USED);
        let (last, mut count) = self.list_levels()?.unwrap_or((planned, 0));
        if count < 2 && last != planned {
            return Err(self.damaged(last));
        }
        while count < 2 {
            self.add_level(last + count)?;
            count += 1;
        }
        let context = Context::new(last + count - 1, last);
        // ORDER: Relaxed: nobody else has the table yet.
        self.context.store(context.0, Ordering::Relaxed);
        if context.is_resizing() {
            self.end_move(context)?;
        }
        Ok(())
    }

    /// Bits of the last level, and the number of levels, which have all bits from there on.
    fn list_levels(&self) -> Result<Option<(u32, u32)>> {
        let mut list: Option<(u32, u32)> = None;
        for bits in (0..).take(LEVELS) {
            // ORDER: Relaxed: nobody else has the table yet.
            let level = self.level_word(bits).load(&self.medium, Ordering::Relaxed);
            if level == 0 {
                continue;
            }
            let end = level.checked_add(BUCKET_BYTES << bits);
            let is_within = end.is_some_and(|end| end <= self.medium.len());
            let (last, count) = list.unwrap_or((bits, 0));
            let is_next = last + count == bits && (BITS_MIN..=BITS_MAX).contains(&bits);
            if !is_within || !level.is_multiple_of(BUCKET_BYTES) || !is_next {
                return Err(self.damaged(bits));
            }
            // ORDER: Relaxed: as above.
            self.levels[bits as usize % LEVELS].store(level, Ordering::Relaxed);
            list = Some((last, count + 1));
        }
        Ok(list)
    }

    fn damaged(&self, bits: u32) -> Error {
        Error::damaged(
            "the levels of a hash table",
            self.medium.offset_of(self.level_word(bits)).raw(),
        )
    }

    /// Ends the move of the bucket that was being moved, and that of the one before, which may not
    /// be durable as far as it was counted: what has a copy goes, and the rest stays.
    fn end_move(&self, context: Context) -> Result<()> {
        let bits = context.last();
        let moved = self.moved(bits);
        let end = (moved + 1).min(1 << bits);
        for number in moved.saturating_sub(1)..end {
            let bucket = self.bucket(bits, number);
            for slot in self.slots(bucket) {
                // ORDER: Relaxed: nobody else has the table yet.
                let word = SlotWord(slot.peek(Ordering::Relaxed));
                if !word.is_entry() {
                    continue;
                }
                let next = match self.has_copy(context, word)? {
                    true => SlotWord::CLOSED,
                    false => word.as_entry(),
                };
                // ORDER: Relaxed: as above.
                slot.store(&self.medium, next.0, Ordering::Relaxed);
            }
            self.seal(bucket);
        }
        Ok(())
    }

    /// Whether the item of an entry of the last level is in another level, too.
    fn has_copy(&self, context: Context, word: SlotWord) -> Result<bool> {
        let hash = self.hash_of(word.item())?;
        let above = Context::new(context.first(), context.last() + 1);
        // ORDER: Relaxed: as above.
        let item_of = |slot: &PAtomicU64| SlotWord(slot.peek(Ordering::Relaxed)).item();
        Ok(self
            .places(above, hash)
            .any(|slot| item_of(slot) == word.item()))
    }
}
