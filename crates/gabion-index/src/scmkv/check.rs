//! The check of the invariants.

use std::collections::{HashMap, HashSet};

use super::layout::{Entry, LINE_BYTES, PageState};
use super::pages::chain_head;
use super::record::Record;
use super::table::entries;
use super::{Scmkv, Volume};
use crate::index::CheckSummary;
use crate::{Error, Result};

/// Live bytes by page.
#[derive(Debug, Default)]
struct Usage(HashMap<u32, u64>);

impl Scmkv {
    /// Reads all entries and checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        self.volume.check()
    }
}

impl Volume {
    fn check(&self) -> Result<CheckSummary> {
        let _cleaning = self.cleaning.lock();
        let mut usage = Usage::default();
        let mut checked = CheckSummary {
            entries: 0,
            blocks: 2 + u64::from(!self.next_table().is_none()),
        };
        let mut from = Some(0);
        while let Some(hash) = from {
            let (table, bucket, entry) = self.bucket_and_table(hash)?;
            let size = 1_u64 << (64 - table.log2());
            if entry.is_chain() {
                self.check_chain(entry, hash, size, &mut usage)?;
            }
            let mut keys = HashSet::new();
            for (_, entry) in entries(&self.medium, bucket, entry)? {
                let (record, key) = self.check_record(entry, &mut usage)?;
                if record.hash & !(size - 1) != hash || !keys.insert(key) {
                    return Err(Error::damaged(
                        "a bucket",
                        self.medium.offset_of(bucket).raw(),
                    ));
                }
                checked.entries += 1;
            }
            from = hash.checked_add(size);
        }
        for number in self.pages.numbers() {
            let page = self.pages.page(number);
            let live = usage.0.remove(&number).unwrap_or(0);
            let is_right = match page.state() {
                PageState::Reserve => live == 0,
                _ => !page.is_counted() || page.live() == live,
            };
            if !is_right {
                return Err(Error::damaged("the usage of a page", page.start()));
            }
            checked.blocks += 1;
        }
        Ok(checked)
    }

    fn check_chain(&self, entry: Entry, hash: u64, size: u64, usage: &mut Usage) -> Result<()> {
        let address = entry.address();
        let bad = || Error::damaged("a chain of the hash table", address);
        let head = chain_head(&self.medium, address).ok_or_else(bad)?;
        let bytes = entry.lines() * LINE_BYTES;
        let is_right = head.lines() == entry.lines()
            && head.hash() & !(size - 1) == hash
            && address.is_multiple_of(LINE_BYTES);
        if is_right && usage.add(self, address, bytes, false) {
            Ok(())
        } else {
            Err(bad())
        }
    }

    /// Reads a record in all its parts.
    fn check_record(&self, entry: Entry, usage: &mut Usage) -> Result<(Record, Vec<u8>)> {
        let bad = || Error::damaged("a record", entry.address());
        let record = self.record_at(entry.address())?;
        let (key, _) = record.content(&self.medium, &self.seed).ok_or_else(bad)?;
        let page = self.pages.number_of(entry.address()).ok_or_else(bad)?;
        let generation = self.pages.page(page).generation();
        let is_right = entry.has_tag_of(record.hash)
            && record.has_head_of(generation)
            && usage.add(self, record.address, record.bytes(), true);
        if is_right {
            Ok((record, key))
        } else {
            Err(bad())
        }
    }
}

impl Usage {
    /// Counts a record or a chain, if it may lie where it does.
    fn add(&mut self, volume: &Volume, address: u64, bytes: u64, is_record: bool) -> bool {
        let Some(number) = volume.pages.number_of(address) else {
            return false;
        };
        let page = volume.pages.page(number);
        let state = page.state();
        let end = if state.is_full() {
            page.end()
        } else {
            page.start() + volume.pages.bytes
        };
        *self.0.entry(number).or_default() += bytes;
        let is_kind = if is_record {
            state.is_log()
        } else {
            matches!(state, PageState::ChainsOpen | PageState::ChainsFull)
        };
        is_kind && address + bytes <= end
    }
}
