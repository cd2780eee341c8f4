//! Gets.
//!
//! # Linearization
//! A get of the newest state takes effect when it loads the visible number. What it then finds in a
//! space may be newer, which is as well: it is published. A get at a registered number finds what
//! was there at that number: see `generation`; if a generation that began after its view was taken
//! is merged meanwhile, it begins again.
//!
//! Both look, after all else, whether the keyspace was dropped at their number or below it: then
//! what they found may be what a drop has left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::generation::{GenerationList, GenerationLookup};
use super::{Flex, FlexKeyspace};
use crate::expiry::{ReadPoint, StoredRecord};
use crate::types::{Seq, hash_key};
use crate::{Result, Slice};

impl Flex {
    /// The value of `key`, now or at a registered point.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>> {
        let record = self.find_record(keyspace, key, snapshot)?;
        Ok(record.map(StoredRecord::into_value))
    }

    /// The record of `key`, now or at a registered point.
    #[inline]
    pub(crate) fn find_record(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<StoredRecord>> {
        let hash = hash_key(key);
        let found = match snapshot {
            Some(point) => self.get_at(keyspace, key, hash, point.seq),
            None => self.get_newest(keyspace, key, hash),
        };
        if keyspace.dropped.is_set() {
            let seq = snapshot.map_or_else(|| self.visible(), |point| point.seq);
            keyspace.dropped.check_at(seq)?;
        }
        let moment = || snapshot.map_or_else(|| self.moments.now(), |point| point.moment);
        Ok(found?.and_then(|record| record.at(moment)))
    }

    #[inline]
    fn get_newest(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<StoredRecord>> {
        let seq = self.visible();
        let view = self.view.load();
        for generation in &view.waiting {
            // Older deletes of ranges are kept for registered readers only.
            let said = generation.with_layer(keyspace.id, |layer| {
                (!layer.has_deletes()).then(|| layer.get(key, hash, seq))
            });
            match said {
                None | Some(Some(GenerationLookup::Nothing)) => {}
                Some(None) => return self.get_registered(keyspace, key, hash),
                Some(Some(GenerationLookup::Deleted)) => return Ok(None),
                Some(Some(GenerationLookup::Record(record))) => return Ok(Some(record)),
            }
        }
        keyspace.partition.get(key, hash)
    }

    fn get_registered(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<StoredRecord>> {
        let point = self.begin_snapshot();
        let found = self.get_at(keyspace, key, hash, point.seq);
        self.end_snapshot(point);
        found
    }

    fn get_at(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        hash: u64,
        seq: Seq,
    ) -> Result<Option<StoredRecord>> {
        loop {
            let view = self.view.load_full();
            for generation in view.for_reader(seq) {
                let said = generation.with_layer(keyspace.id, |layer| layer.get(key, hash, seq));
                match said {
                    None | Some(GenerationLookup::Nothing) => {}
                    Some(GenerationLookup::Deleted) => return Ok(None),
                    Some(GenerationLookup::Record(record)) => return Ok(Some(record)),
                }
            }
            let merged = keyspace.partition.get(key, hash)?;
            if !self.is_outdated(&view) {
                let newer = view.for_reader(seq).filter(|own| own.max_seq() > seq);
                let images = newer.filter_map(|own| {
                    own.with_layer(keyspace.id, |layer| layer.image(key))
                        .flatten()
                });
                return Ok(images.last().unwrap_or(merged));
            }
        }
    }

    /// Whether the space may hold what no generation of the view knows of. Asked after the space
    /// was read.
    #[inline]
    pub(super) fn is_outdated(&self, view: &Arc<GenerationList>) -> bool {
        // ORDER: Acquire pairs with the Release in `merge_oldest`; who has read what a merge
        // changed has taken the lock under which it did.
        self.merging.load(Ordering::Acquire) > view.active().number
    }

    /// The values of `keys` at `snapshot`, which is registered, in their order.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &FlexKeyspace,
        keys: &[K],
        snapshot: ReadPoint,
    ) -> Result<Vec<Option<Slice>>> {
        let get = |key: &K| self.get(keyspace, key.as_ref(), Some(snapshot));
        keys.iter().map(get).collect()
    }
}
