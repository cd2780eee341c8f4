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

use super::generation::{Said, View};
use super::{Flex, Keyspace};
use crate::types::{Seq, hash_key};
use crate::{Result, Slice};

impl Flex {
    /// The value of `key`, now or at a registered number.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        snapshot: Option<Seq>,
    ) -> Result<Option<Slice>> {
        let hash = hash_key(key);
        let found = match snapshot {
            Some(seq) => self.get_at(keyspace, key, hash, seq),
            None => self.get_newest(keyspace, key, hash),
        };
        if keyspace.dropped.is_set() {
            let seq = snapshot.unwrap_or_else(|| self.visible());
            keyspace.dropped.check_at(seq)?;
        }
        found
    }

    #[inline]
    fn get_newest(&self, keyspace: &Keyspace, key: &[u8], hash: u64) -> Result<Option<Slice>> {
        let seq = self.visible();
        let view = self.view.load();
        for generation in &view.waiting {
            // Older deletes of ranges are kept for registered readers only.
            let said = generation.with_layer(keyspace.id, |layer| {
                (!layer.has_deletes()).then(|| layer.get(key, hash, seq))
            });
            match said {
                None | Some(Some(Said::Nothing)) => {}
                Some(None) => return self.get_registered(keyspace, key, hash),
                Some(Some(Said::Deleted)) => return Ok(None),
                Some(Some(Said::Value(value))) => return Ok(Some(value)),
            }
        }
        keyspace.partition.get(key, hash)
    }

    fn get_registered(&self, keyspace: &Keyspace, key: &[u8], hash: u64) -> Result<Option<Slice>> {
        let seq = self.begin_snapshot();
        let found = self.get_at(keyspace, key, hash, seq);
        self.end_snapshot(seq);
        found
    }

    fn get_at(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        hash: u64,
        seq: Seq,
    ) -> Result<Option<Slice>> {
        loop {
            let view = self.view.load_full();
            for generation in view.for_reader(seq) {
                let said = generation.with_layer(keyspace.id, |layer| layer.get(key, hash, seq));
                match said {
                    None | Some(Said::Nothing) => {}
                    Some(Said::Deleted) => return Ok(None),
                    Some(Said::Value(value)) => return Ok(Some(value)),
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
    pub(super) fn is_outdated(&self, view: &Arc<View>) -> bool {
        // ORDER: Acquire pairs with the Release in `merge_oldest`; who has read what a merge
        // changed has taken the lock under which it did.
        self.merging.load(Ordering::Acquire) > view.active().number
    }

    /// The values of `keys` at `snapshot`, which is registered, in their order.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        snapshot: Seq,
    ) -> Result<Vec<Option<Slice>>> {
        let get = |key: &K| self.get(keyspace, key.as_ref(), Some(snapshot));
        keys.iter().map(get).collect()
    }
}
