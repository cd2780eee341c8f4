//! Writes: each takes effect by one exchange of the word of a slot, without a lock.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, PAtomicU64, POff, Reserved, Retiring};

use super::Clevel;
use super::layout::SlotWord;
use super::places::Context;
use super::recovery::item_hint;
use crate::lock::Backoff;
use crate::{Item, Result};

/// What is done to a key.
#[derive(Clone, Copy)]
pub(super) enum KeyChange {
    Insert(u64),
    Update(u64),
    Remove,
}

impl KeyChange {
    /// The new value, if there is one.
    fn value(self) -> Option<u64> {
        match self {
            KeyChange::Insert(value) | KeyChange::Update(value) => Some(value),
            KeyChange::Remove => None,
        }
    }
}

/// How often an insert gives way to another one of the same key that was announced in front of it:
/// then the other one has lost its processor, most likely, and goes.
const PATIENCE: u32 = 8;

/// Where an entry is, or is to be.
#[derive(Clone, Copy)]
struct Place<'a> {
    context: Context,
    hash: u64,
    slot: &'a PAtomicU64,
}

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// Changes what is under a key, and returns the value before.
    #[inline]
    pub(super) fn write(&self, key: &K, change: KeyChange) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        match self.attempt(key, change) {
            Err(error) if error.is_no_space() => {
                // What was replaced a moment ago is free when no guard is in its way.
                self.pool.collect();
                self.attempt(key, change)
            }
            other => other,
        }
    }

    fn attempt(&self, key: &K, change: KeyChange) -> Result<Option<u64>> {
        let guard = self.pool.enter();
        let hash = key.seeded_hash(&self.seed);
        let mut item: Option<Reserved<'_>> = None;
        let mut backoff = Backoff::default();
        let mut conflicts = 0;
        loop {
            let context = self.context();
            if let Some((slot, word)) = self.find(context, hash, key)? {
                if word.is_leaving() || self.is_half_moved(hash, word) {
                    self.wait_for_move();
                    continue;
                }
                let new = match (change.value(), item.take()) {
                    (Some(value), None) => Some(self.reserve(key, hash, value)?),
                    (_, reserved) => reserved,
                };
                let place = Place {
                    context,
                    hash,
                    slot,
                };
                match self.replace(&place, word, new, &guard)? {
                    None => continue,
                    before => return Ok(before),
                }
            }
            if self.context() != context {
                continue;
            }
            let KeyChange::Insert(value) = change else {
                self.settle(context, hash);
                return Ok(None);
            };
            // What is in the last level has to be moved soon.
            let lowest = context.last() + u32::from(context.is_resizing());
            let Some(slot) = self.free_place(lowest..=context.first(), hash) else {
                self.grow(context)?;
                continue;
            };
            let reserved = match item.take() {
                Some(reserved) => reserved,
                None => self.reserve(key, hash, value)?,
            };
            let place = Place {
                context,
                hash,
                slot,
            };
            item = self.enter(&place, key, reserved, conflicts < PATIENCE)?;
            if item.is_none() {
                drop(guard);
                self.help(context);
                return Ok(None);
            }
            conflicts += 1;
            backoff.wait();
        }
    }

    /// Lets an item be the entry of a key that has none. Returns it if that changes meanwhile.
    fn enter<'a>(
        &self,
        place: &Place<'_>,
        key: &K,
        item: Reserved<'a>,
        is_patient: bool,
    ) -> Result<Option<Reserved<'a>>> {
        let Place {
            context,
            hash,
            slot,
        } = *place;
        let at = item.offset::<u8>().raw();
        let announced = SlotWord::announced(hash, at);
        // DURABLE: the item, and the allocator's note, before a slot names it.
        self.medium.fence();
        if !self.exchange(slot, SlotWord::FREE, announced) {
            return Ok(Some(item));
        }
        let is_alone = self.is_alone(place, key, is_patient);
        if matches!(is_alone, Ok(true)) {
            // That the key has no entry may not be durable yet.
            self.settle(context, hash);
            let _mark = self.pending.mark(hash);
            if self.exchange(slot, announced, SlotWord::entry(hash, at)) {
                // DURABLE: the entry.
                self.medium.persist(slot);
                item.commit::<u8>();
                return Ok(None);
            }
        } else {
            self.exchange(slot, announced, SlotWord::FREE);
        }
        // DURABLE: that the item is announced here no more, before it is elsewhere or free.
        self.medium.persist(slot);
        is_alone.map(|_| Some(item))
    }

    /// Whether no other slot has an entry or an announcement of the key that was announced in a
    /// slot. Takes back other announcements, but if it is patient only those behind that slot.
    fn is_alone(&self, place: &Place<'_>, key: &K, is_patient: bool) -> Result<bool> {
        let tag = SlotWord::tag_of(place.hash);
        let mut is_in_front = true;
        for slot in self.places(place.context, place.hash) {
            if std::ptr::eq(slot, place.slot) {
                is_in_front = false;
                continue;
            }
            // ORDER: SeqCst: see `exchange`.
            let word = SlotWord(slot.peek(Ordering::SeqCst));
            if !word.has_tag(tag) {
                continue;
            }
            match self.is_key(word.item(), key) {
                Ok(true) => {}
                Ok(false) => continue,
                // An item that was announced and is given up may be anything by now.
                // ORDER: SeqCst: as above.
                Err(_) if slot.peek(Ordering::SeqCst) != word.0 => return Ok(false),
                Err(error) => return Err(error),
            }
            let is_kept = word.is_entry() || is_in_front && is_patient;
            if is_kept || !self.exchange(slot, word, SlotWord::FREE) {
                return Ok(false);
            }
        }
        Ok(self.context() == place.context)
    }

    /// Lets the entry in a slot be another one of the same key, or none, and returns the value
    /// before. None if the slot has changed meanwhile.
    fn replace(
        &self,
        place: &Place<'_>,
        word: SlotWord,
        new: Option<Reserved<'_>>,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>> {
        let Place {
            context,
            hash,
            slot,
        } = *place;
        let Some(retiring) = self.retire(place, word)? else {
            return Ok(None);
        };
        if self.pending.is_marked(hash) {
            // What this was found by may not be durable yet: that it is nowhere else.
            self.flush_places(context, hash);
        }
        // DURABLE: the new item, before the slot names it, and the notes of the allocator.
        self.medium.fence();
        let before = self.value(word.item())?;
        let _mark = self.pending.mark(hash);
        let next = new.as_ref().map(|item| item.offset::<u8>().raw());
        let next = next.map_or(SlotWord::FREE, |at| SlotWord::entry(hash, at));
        if !self.exchange(slot, word, next) {
            return Ok(None);
        }
        // DURABLE: the change.
        self.medium.persist(slot);
        if let Some(item) = new {
            item.commit::<u8>();
        }
        retiring.commit(guard);
        Ok(Some(before))
    }

    /// Announces to the allocator that the item of an entry goes. None if the slot has changed
    /// meanwhile.
    fn retire(&self, place: &Place<'_>, word: SlotWord) -> Result<Option<Retiring<'_>>> {
        let item: POff<u8> = POff::new(word.item());
        let mut backoff = Backoff::default();
        loop {
            let is_marked = self.pending.is_marked(place.hash);
            let refused = match self.pool.retire(item, item_hint(place.hash)) {
                Ok(retiring) => return Ok(Some(retiring)),
                Err(error) => error,
            };
            // ORDER: Relaxed: the exchange looks again.
            if place.slot.peek(Ordering::Relaxed) != word.0 {
                return Ok(None);
            }
            // Who put it there may not have told the allocator yet.
            if !is_marked {
                return Err(refused.into());
            }
            backoff.wait();
        }
    }
}
