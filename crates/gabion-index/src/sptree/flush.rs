//! From write buffers into leaves, and who has a buffer.
//!
//! The paper's minor compaction: what is in a buffer becomes part of the leaf in two phases, new
//! pairs and tags first, then the bitmap, and with it, in the same line and behind it, `merged`.
//! Values of keys that the leaf has already are stored where they are, in the first phase: the logs
//! have them, so readers may see them at any time. A crash between bitmap and `merged` leaves
//! changes in the logs that the leaf has; to make them again changes nothing.
//!
//! A leaf always has free slots for all keys of its buffer that it does not have (I8), so this
//! takes no space of the pool and fails only for damage.
//!
//! Only trees of words have buffers.

use std::borrow::Borrow;

use super::buffer::{Buffer, HEAT_MIN, buffered_max};
use super::layout::PAIRS_AT;
use super::leaf::{HeadChange, Tagged};
use super::log::{LogBacklog, LoggedChange, Logs};
use super::mnode::{LockedNode, Mnode};
use super::readpath::NodeSearch;
use super::steps::{Step, is_taken};
use super::{SpTree, TreeKey};
use crate::{Error, Result};

/// Records that a write looks at when the logs have grown to their limit: more than it adds.
const LOOKS: usize = 4;

/// What becomes of a key in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushOutcome {
    pub(super) entry: Tagged,
    pub(super) is_delete: bool,
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// The write buffer of a node.
    #[inline]
    pub(super) fn buffer_of(&self, node: &Mnode) -> Option<&Buffer> {
        self.buffers.get(node.buffer()?)
    }

    /// The buffer for a write to a node: its own, a free one, or that of a node that is written
    /// less.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub(super) fn buffer_for(&self, node: &LockedNode<'_>) -> Result<Option<&Buffer>> {
        if !self.buffers.are_some() || !self.recovery.is_over() {
            return Ok(None);
        }
        let heat = node.warm();
        if let Some(buffer) = self.buffer_of(node) {
            return Ok(Some(buffer));
        }
        self.find_buffer(node, heat)
    }

    #[cold]
    fn find_buffer(&self, node: &LockedNode<'_>, heat: u8) -> Result<Option<&Buffer>> {
        let mut given = self.buffers.take(node.number);
        if given.is_none() && heat >= HEAT_MIN {
            given = self.take_over(node, heat)?;
        }
        node.set_buffer(given);
        Ok(given.and_then(|number| self.buffers.get(number)))
    }

    /// Takes a buffer from the node at the hand if that is written less.
    fn take_over(&self, node: &LockedNode<'_>, heat: u8) -> Result<Option<u32>> {
        let Some((number, owner)) = self.buffers.advance() else {
            return Ok(None);
        };
        let Some(victim) = self.nodes.get(owner) else {
            return Ok(None);
        };
        if victim.heat() >= heat {
            victim.cool();
            return Ok(None);
        }
        // Not waited for: its holder may wait for this node.
        let Some(victim) = victim.try_lock(owner) else {
            return Ok(None);
        };
        if victim.buffer() != Some(number) {
            return Ok(None);
        }
        self.flush(&victim)?;
        victim.set_buffer(None);
        self.buffers.set_owner(number, Some(node.number));
        Ok(Some(number))
    }

    /// Takes the empty buffer of a node away.
    pub(super) fn release_buffer(&self, node: &LockedNode<'_>) {
        if let Some(number) = node.buffer() {
            node.set_buffer(None);
            self.buffers.give_back(number);
        }
    }

    /// Brings what is in the buffer of a node into its leaf, durably.
    ///
    /// # Errors
    /// Damage on the medium.
    pub(super) fn flush(&self, node: &LockedNode<'_>) -> Result<()> {
        let last = node.last();
        if node.merged() == last {
            return Ok(());
        }
        let Some(buffer) = self.buffer_of(node) else {
            return Ok(());
        };
        let changes = buffer.entries().map(|entry| FlushOutcome {
            entry,
            is_delete: false,
        });
        self.absorb(node, changes, last)?;
        buffer.clear();
        Ok(())
    }

    /// Makes changes of the logs in the leaf of a node, each of a key of its own, the last of them
    /// with the number `last`. Count and filter are the caller's.
    ///
    /// # Errors
    /// Damage on the medium.
    pub(super) fn absorb(
        &self,
        node: &LockedNode<'_>,
        changes: impl Iterator<Item = FlushOutcome>,
        last: u64,
    ) -> Result<()> {
        let leaf = self.leaf(node.leaf())?;
        let mut dropped = 0;
        let mut fresh = Vec::with_capacity(N);
        for FlushOutcome { entry, is_delete } in changes {
            let key = K::rebuild(entry.key, &[]);
            match leaf.find::<K>(key.borrow(), entry.tag)? {
                Some(slot) if is_delete => dropped |= 1 << slot,
                Some(slot) => leaf.set_value(slot, entry.value),
                None if is_delete => {}
                None => fresh.push(entry),
            }
        }
        if leaf.count() + fresh.len() > N {
            return Err(Error::damaged(
                "the space for the log entries of a leaf",
                leaf.at + PAIRS_AT,
            ));
        }
        leaf.put_and(&fresh, dropped, &[HeadChange::Merged(last)]);
        node.set_merged(last);
        node.note_change();
        Ok(())
    }

    /// What a write does besides: a part of the recovery, and of the work that keeps the logs at
    /// their limit. Whoever calls holds no lock.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub(super) fn tend(&self) -> Result<()> {
        if !self.recovery.is_over() {
            self.tend_recovery();
        }
        self.tend_logs()
    }

    /// Keeps the logs at their limit. Whoever calls holds no lock.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    fn tend_logs(&self) -> Result<()> {
        if !self.buffers.are_some() {
            return Ok(());
        }
        let room = self.buffers.used() as usize * buffered_max(N);
        match self.logs.backlog(room) {
            LogBacklog::None => Ok(()),
            backlog => self.look_at_records(backlog),
        }
    }

    #[cold]
    fn look_at_records(&self, backlog: LogBacklog) -> Result<()> {
        let (waits, looks) = match backlog {
            LogBacklog::Much => (true, Logs::<N>::RECORDS),
            _ => (false, LOOKS),
        };
        let Some(mut cursor) = self.logs.cursor(waits) else {
            return Ok(());
        };
        for _ in 0..looks {
            let see = |record: LoggedChange| self.see_merged(record.key, record.number);
            if !self.logs.visit(&mut cursor, see)? {
                break;
            }
        }
        Ok(())
    }

    /// Sees to it that the leaf of a key has a change.
    fn see_merged(&self, key: u64, number: u64) -> Result<()> {
        let key = K::rebuild(key, &[]);
        let mut search = NodeSearch::new(self, key.borrow());
        loop {
            let seen = search.node()?;
            let merged = seen.node.merged();
            if !seen.node.is_still(seen.word) {
                continue;
            }
            if number <= merged || !is_taken(Step::Reclaim) {
                return Ok(());
            }
            if let Some(node) = seen.node.lock_seen(seen.number, seen.word) {
                return self.flush(&node);
            }
        }
    }
}
