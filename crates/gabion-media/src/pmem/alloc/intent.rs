//! Intents: records of what operations in flight are about to do with blocks.
//!
//! # Idea
//! A block is allocated when something durable refers to it, and only the structure knows when
//! that is. So before the structure publishes a block, an intent says which block, and where the
//! reference will be (the *hint*). After a crash, recovery asks at the hint whether the reference
//! is there, and sets the block's state accordingly. The same serves for blocks that are about to
//! be unpublished.
//!
//! # Layout of an intent
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | offset of the block |
//! | 8 | 8 | hint |
//! | 16 | 8 | number of chunks, 0 for a block of a slab; top bit set if it is to be retired |
//! | 24 | 8 | CRC-32C of the three words, bit 32 set; zero if there is no intent |
//!
//! # Ordering
//! An intent is written and flushed when the block is reserved. The fence that the structure needs
//! anyway between content and publish makes it durable too. The state of the block is changed and
//! flushed after the publish is durable, and becomes durable with a later fence of that thread, or
//! a flush and a fence of another; until then the intent must stay. An intent whose fence came may
//! stay too: it is *stale*. Recovery finds that the state is what the intent asks for, and so it
//! harms nothing until the block, or the memory of its hint, is free for other uses; before that
//! it is erased, or what another thread has written over it is flushed again. The same holds for a
//! block that was reserved and given up. [`IntentRing`] tracks which
//! are which.

use std::sync::atomic::Ordering;

use super::super::atomic::PAtomicU64;
use super::super::medium::Medium;
use crate::crc32c;
use crate::media_struct;

/// Intents of one heap.
pub(crate) const SLOTS: usize = 16;

media_struct! {
    /// One intent.
    pub(crate) struct IntentSlot {
        block: PAtomicU64,
        hint: PAtomicU64,
        count: PAtomicU64,
        check: PAtomicU64,
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<IntentSlot>() == 32);
    assert!(offset_of!(IntentSlot, hint) == 8);
    assert!(offset_of!(IntentSlot, count) == 16);
    assert!(offset_of!(IntentSlot, check) == 24);
    assert!((SLOTS * size_of::<IntentSlot>()) as u64 == super::super::layout::RING_BYTES);
};

const RETIRE: u64 = 1 << 63;

/// What is about to happen to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    /// Offset of the block.
    pub(crate) block: u64,
    /// Where the reference to it is or will be.
    pub(crate) hint: u64,
    /// Number of its chunks, 0 in a slab.
    pub(crate) count: u64,
    /// Whether the reference is about to go, rather than to come.
    pub(crate) is_retire: bool,
}

impl Intent {
    fn words(self) -> [u64; 3] {
        let kind = if self.is_retire { RETIRE } else { 0 };
        [self.block, self.hint, self.count | kind]
    }
}

fn check_of(words: [u64; 3]) -> u64 {
    let sum = words.iter().fold(0, |sum, word| {
        crc32c::crc32c_append(sum, &word.to_le_bytes())
    });
    u64::from(sum) | 1 << 32
}

// ORDER: Relaxed throughout: intents are read by recovery only, and a damaged or half-written one
// fails its check.
impl IntentSlot {
    /// Writes an intent and flushes it.
    #[track_caller]
    pub(crate) fn write(&self, medium: &Medium, intent: Intent) {
        let words = intent.words();
        self.block.store(medium, words[0], Ordering::Relaxed);
        self.hint.store(medium, words[1], Ordering::Relaxed);
        self.count.store(medium, words[2], Ordering::Relaxed);
        self.check.store(medium, check_of(words), Ordering::Relaxed);
        medium.flush(self);
    }

    /// Erases an intent and flushes it.
    #[track_caller]
    pub(crate) fn erase(&self, medium: &Medium) {
        self.check.store(medium, 0, Ordering::Relaxed);
        medium.flush(self);
    }

    /// Whether nothing was ever written here or it was erased.
    pub(crate) fn is_blank(&self, medium: &Medium) -> bool {
        self.check.load(medium, Ordering::Relaxed) == 0
    }

    /// The intent, if there is a whole one.
    pub(crate) fn read(&self, medium: &Medium) -> Option<Intent> {
        let words =
            [&self.block, &self.hint, &self.count].map(|word| word.load(medium, Ordering::Relaxed));
        let check = self.check.load(medium, Ordering::Relaxed);
        (check == check_of(words)).then_some(Intent {
            block: words[0],
            hint: words[1],
            count: words[2] & !RETIRE,
            is_retire: words[2] & RETIRE != 0,
        })
    }
}

/// What the process knows of the slots of one heap.
#[derive(Debug, Default)]
pub(crate) struct IntentRing {
    slots: [Slot; SLOTS],
    /// Counts announcements and commits.
    clock: u64,
}

/// One slot. Times are readings of the ring's clock; threads are numbers that are never reused.
#[derive(Clone, Copy, Debug, Default)]
enum Slot {
    /// Nothing on the medium.
    #[default]
    Blank,
    /// An intent that counts no more.
    Stale,
    /// An operation of `thread` is in flight.
    Announced { time: u64, thread: u64 },
    /// The operation has changed the state of its block and flushed it.
    Committed {
        time: u64,
        thread: u64,
        intent: Intent,
    },
}

impl IntentRing {
    /// Takes a slot for a new intent of `thread`; none if all of them are needed.
    pub(crate) fn announce(&mut self, thread: u64) -> Option<usize> {
        let index = self
            .slots
            .iter()
            .position(|slot| matches!(slot, Slot::Blank | Slot::Stale))?;
        self.clock += 1;
        self.slots[index] = Slot::Announced {
            time: self.clock,
            thread,
        };
        Some(index)
    }

    /// Takes note that the state of the block was changed and flushed by `thread`, which has
    /// fenced since it announced the intent. So the thread's earlier changes are durable.
    pub(crate) fn commit(&mut self, index: usize, thread: u64, intent: Intent) {
        let Some(Slot::Announced {
            time: announced, ..
        }) = self.slots.get(index).copied()
        else {
            debug_assert!(false, "an announced intent is committed once");
            return;
        };
        for slot in &mut self.slots {
            match slot {
                Slot::Committed {
                    time, thread: by, ..
                } if *by == thread && *time < announced => {
                    *slot = Slot::Stale;
                }
                _ => {}
            }
        }
        self.clock += 1;
        let time = self.clock;
        self.slots[index] = Slot::Committed {
            time,
            thread,
            intent,
        };
    }

    /// Takes note that an intent was erased and fenced.
    pub(crate) fn blank(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot::Blank;
        }
    }

    /// Takes note that the operation was given up before it published anything.
    pub(crate) fn give_up(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot::Stale;
        }
    }

    /// The intents whose change of state may not be durable yet, and the threads that flushed it.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (u64, Intent)> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Committed { thread, intent, .. } => Some((*thread, *intent)),
            _ => None,
        })
    }

    /// The slots of operations in flight on other threads than `this`.
    pub(crate) fn announced_by_others(&self, this: u64) -> impl Iterator<Item = usize> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(index, slot)| match slot {
            Slot::Announced { thread, .. } if *thread != this => Some(index),
            _ => None,
        })
    }

    /// Takes note that all changes of state are durable.
    pub(crate) fn settle(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Committed { .. }) {
                *slot = Slot::Stale;
            }
        }
    }

    /// Whether no slot can be taken unless some are erased.
    pub(crate) fn is_full(&self) -> bool {
        !self
            .slots
            .iter()
            .any(|slot| matches!(slot, Slot::Blank | Slot::Stale))
    }

    /// The slots of operations that are over, whose changes of state are durable: the caller erases
    /// the intents, and they count as blank.
    pub(crate) fn take_stale(&mut self) -> Vec<usize> {
        let mut taken = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot, Slot::Stale) {
                *slot = Slot::Blank;
                taken.push(index);
            }
        }
        taken
    }
}
