//! Puts and deletes.

use std::sync::atomic::Ordering;

use gabion_media::pmem::PAtomicU64;

use super::layout::{ChainHead, Entry, LINE_BYTES, LINES_MAX};
use super::log::{RecordFlush, ThreadLog, room_of_page};
use super::pages::PageUser;
use super::record::NewRecord;
use super::steps::{Step, is_taken};
use super::table::KeyLookup;
use super::{Durability, Scmkv, Volume};
use crate::{Error, Result};

/// The one store that a write comes down to, and the chains that it replaces.
#[derive(Debug)]
pub(super) struct EntryChange<'a> {
    pub(super) word: &'a PAtomicU64,
    pub(super) value: Entry,
    /// Address and bytes of a new chain.
    new_chain: Option<(u64, u64)>,
    /// Of one that is of no use any more.
    old_chain: Option<(u64, u64)>,
}

impl Volume {
    /// Stores a value and tells whether the key is new.
    pub(super) fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<bool> {
        self.check_sizes(key, value)?;
        let hash = self.seed.hash_bytes(key);
        // The bucket is on its way while the value is hashed.
        self.medium.prefetch(self.table().bucket_of(hash));
        let record = NewRecord::new(hash, key, value);
        loop {
            let table = self.table();
            match self.try_put(key, &record, durability) {
                Err(error) if error.is_no_space() => {
                    if !self.make_room()? {
                        return Err(error);
                    }
                }
                // A table that is much too small.
                Err(error @ Error::ChainLimit { .. }) => {
                    if !self.enlarge_if_crowded(table)? {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    fn check_sizes(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let limits = [
            ("key", key.len(), self.key_bytes_max),
            ("value", value.len(), self.value_bytes_max),
        ];
        for (what, bytes, limit) in limits {
            let bytes = bytes as u64;
            if bytes > limit {
                return Err(Error::Limit { what, bytes, limit });
            }
        }
        Ok(())
    }

    fn try_put(&self, key: &[u8], record: &NewRecord<'_>, durability: Durability) -> Result<bool> {
        let _within = self.pool.write_guard();
        let _stripe = self.stripes.lock(record.hash);
        let spot = self.spot_of_key(record.hash, key)?;
        self.put_into(&mut self.logs.mine(), &spot, record, durability)
    }

    /// Stores a value in the cleaner's log, which has pages that are kept for that (P4).
    fn put_copy(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_sizes(key, value)?;
        let record = NewRecord::new(self.seed.hash_bytes(key), key, value);
        let mut cleaning = self.cleaning.lock();
        self.end_narrow_pages(&mut cleaning.log, &record)?;
        // What earlier copies took comes back, and what else is garbage. If not all of it does,
        // there may be enough.
        self.make_kept_room(&mut cleaning)?;
        let log = &mut cleaning.log;
        log.taker = PageUser::Copy;
        let _within = self.pool.write_guard();
        let _stripe = self.stripes.lock(record.hash);
        let spot = self.spot_of_key(record.hash, key)?;
        let stored = self.put_into(log, &spot, &record, Durability::Strict);
        // Counts are kept by the logs of writers.
        let mut mine = self.logs.mine();
        mine.puts += std::mem::take(&mut log.puts);
        mine.put_bytes += std::mem::take(&mut log.put_bytes);
        stored.map(drop)
    }

    /// Makes the pages of the cleaner's log full that have no room for a record, or for the chain
    /// that it may need.
    fn end_narrow_pages(&self, log: &mut ThreadLog, record: &NewRecord<'_>) -> Result<()> {
        let _within = self.pool.write_guard();
        let stripe = self.stripes.lock(record.hash);
        let (_, entry) = self.bucket(record.hash)?;
        let lines = if entry.is_chain() { entry.lines() } else { 0 };
        drop(stripe);
        log.close_narrow(&self.pages, record.bytes(), (lines + 1) * LINE_BYTES);
        Ok(())
    }

    /// Stores a value by a log. Whoever calls holds the stripe.
    fn put_into(
        &self,
        log: &mut ThreadLog,
        spot: &KeyLookup<'_>,
        record: &NewRecord<'_>,
        durability: Durability,
    ) -> Result<bool> {
        let hash = record.hash;
        let bytes = record.bytes();
        let address = log.room_for_record(&self.pages, bytes)?.next();
        let change = self.change_to(log, spot, Entry::record(address, hash), hash)?;
        let old = spot.found.as_ref().map(|found| found.record);
        let old_address = match old {
            Some(old) if is_taken(Step::NameOld) => old.address,
            _ => 0,
        };
        let flush = match durability {
            Durability::Relaxed => RecordFlush::Head,
            Durability::Strict => RecordFlush::All,
        };
        log.append(&self.medium, record, old_address, flush);
        // DURABLE: the record, or at least its head, and the chain if there is a new one, before
        // the table refers to them.
        self.medium.fence();
        self.publish(&change);
        self.pages.count_in(address, bytes);
        if let Some(old) = old {
            self.pages.count_out(old.address, old.bytes());
        }
        log.puts += 1;
        log.put_bytes += bytes;
        Ok(old.is_none())
    }

    /// How an entry comes into its bucket: in the place of the one that was found, in a free word,
    /// or with a chain that is a line longer. Such a chain is written and flushed, not fenced.
    pub(super) fn change_to<'a>(
        &self,
        log: &mut ThreadLog,
        spot: &KeyLookup<'a>,
        new: Entry,
        hash: u64,
    ) -> Result<EntryChange<'a>> {
        let in_word = |word| EntryChange {
            word,
            value: new,
            new_chain: None,
            old_chain: None,
        };
        if let Some(found) = &spot.found {
            return Ok(in_word(found.word));
        }
        if spot.entry.is_empty() {
            return Ok(in_word(spot.bucket));
        }
        // ORDER: Relaxed: whoever changes the chain holds the stripe.
        let load = |word: &PAtomicU64| Entry(word.load(&self.medium, Ordering::Relaxed));
        if let Some(free) = spot.words.iter().find(|word| load(word).is_empty()) {
            return Ok(in_word(free));
        }
        let (mut all, old_chain): (Vec<Entry>, _) = if spot.entry.is_chain() {
            let chain = (spot.entry.address(), spot.entry.lines() * LINE_BYTES);
            (spot.words.iter().map(load).collect(), Some(chain))
        } else {
            (vec![spot.entry], None)
        };
        all.push(new);
        let value = self.write_chain(log, &all, hash)?;
        Ok(EntryChange {
            word: spot.bucket,
            value,
            new_chain: Some((value.address(), value.lines() * LINE_BYTES)),
            old_chain,
        })
    }

    /// Writes and flushes a chain of some entries, without a fence.
    pub(super) fn write_chain(
        &self,
        log: &mut ThreadLog,
        all: &[Entry],
        hash: u64,
    ) -> Result<Entry> {
        let lines = (1 + all.len() as u64).div_ceil(LINE_BYTES / 8);
        let bytes = lines * LINE_BYTES;
        let limit = LINES_MAX.min(room_of_page(self.pages.bytes) / LINE_BYTES);
        if lines > limit {
            return Err(Error::ChainLimit { lines, limit });
        }
        let head = log.room_for_chain(&self.pages, bytes)?;
        let address = head.next();
        let words = std::iter::once(ChainHead::new(hash, lines).0);
        let words = words.chain(all.iter().map(|entry| entry.0));
        let mut content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        content.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        self.medium.write(address, &content);
        // DURABLE: the chain, with the fence before its publish.
        self.medium.flush_range(address, bytes);
        head.tail += bytes;
        head.persisted = head.tail;
        self.counts.chain_of(lines);
        Ok(Entry::chain(address, lines))
    }

    /// Makes a change visible and durable. Everything that it refers to is durable.
    #[inline]
    pub(super) fn publish(&self, change: &EntryChange<'_>) {
        // ORDER: Release pairs with the Acquire of lookups.
        // DURABLE: the change is, before the stripe is free again.
        change
            .word
            .store_persist(&self.medium, change.value.0, Ordering::Release);
        if let Some((address, bytes)) = change.new_chain {
            self.pages.count_in(address, bytes);
        }
        if let Some((address, bytes)) = change.old_chain {
            self.pages.count_out(address, bytes);
        }
    }

    /// Deletes a key and tells whether it was there.
    pub(super) fn delete(&self, key: &[u8]) -> Result<bool> {
        let hash = self.seed.hash_bytes(key);
        let _within = self.pool.write_guard();
        let _stripe = self.stripes.lock(hash);
        let spot = self.spot_of_key(hash, key)?;
        if let Some(head) = &mut self.logs.mine().records
            && is_taken(Step::PersistBeforeDelete)
        {
            // What this thread wrote before the delete is not lost if the delete is not, nor where
            // there is nothing to delete.
            self.pages.persist(head);
        }
        let Some(found) = &spot.found else {
            return Ok(false);
        };
        self.publish(&self.change_without(&spot, found.word));
        self.pages
            .count_out(found.record.address, found.record.bytes());
        self.counts.deleted();
        Ok(true)
    }

    /// How an entry leaves its bucket. A chain with one entry left gives way to that entry, one
    /// with none to an empty bucket.
    pub(super) fn change_without<'a>(
        &self,
        spot: &KeyLookup<'a>,
        word: &'a PAtomicU64,
    ) -> EntryChange<'a> {
        let is_other = |other: &&PAtomicU64| !std::ptr::eq(*other, word);
        let others = spot.words.iter().filter(is_other);
        // ORDER: Relaxed: whoever changes the chain holds the stripe.
        let others = others.map(|other| Entry(other.load(&self.medium, Ordering::Relaxed)));
        let mut others = others.filter(|other| !other.is_empty());
        let last = others.next().unwrap_or(Entry::EMPTY);
        if others.next().is_some() {
            return EntryChange {
                word,
                value: Entry::EMPTY,
                new_chain: None,
                old_chain: None,
            };
        }
        let chain = (spot.entry.address(), spot.entry.lines() * LINE_BYTES);
        EntryChange {
            word: spot.bucket,
            value: last,
            new_chain: None,
            old_chain: spot.entry.is_chain().then_some(chain),
        }
    }

    /// Makes everything written so far durable in all logs.
    pub(super) fn persist_logs(&self) {
        let _within = self.pool.write_guard();
        for mut log in self.logs.each() {
            log.persist(&self.pages);
        }
    }
}

impl Scmkv {
    /// Stores `value` under `key`, at the store's durability. Tells whether the key is new.
    ///
    /// # Errors
    /// No space, once garbage is collected; a key or value too long; damage on the medium. A failed
    /// operation has changed nothing, and lookups and deletes go on.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.volume.put(key, value, self.volume.durability())
    }

    /// As [`Scmkv::put`], at a durability of its own.
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<bool> {
        self.volume.put(key, value, durability)
    }

    /// As [`Scmkv::put_with`], strictly, with space in pages that are kept for that: a full store
    /// has them, too, if the last such pair was deleted. There are some if
    /// [`Options::keeps_for_copies`](super::Options::keeps_for_copies) says so, and they could be
    /// set aside before the store was full.
    ///
    /// # Errors
    /// As [`Scmkv::put`].
    pub fn put_copy(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.volume.put_copy(key, value)
    }

    /// Deletes `key` and tells whether it was there. Always strict, whatever the store's
    /// durability, and needs no space: when it returns, all that this thread wrote before is
    /// durable, even if there was nothing to delete.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.volume.delete(key)
    }

    /// Makes everything written so far survive what the pool's class survives.
    ///
    /// # Errors
    /// As [`gabion_media::pmem::Pool::sync`], for pools of class `PowerBySync`.
    pub fn persist(&self) -> Result<()> {
        self.volume.persist_logs();
        if self.volume.pool.class() == gabion_media::pmem::PoolClass::PowerBySync {
            self.volume.pool.sync()?;
        }
        Ok(())
    }
}
