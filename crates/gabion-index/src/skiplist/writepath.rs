//! Writes: under the locks of the nodes whose links change.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff};

use super::SkipList;
use super::layout::{KEY_BYTES_MAX, LEVELS};
use super::node::{Node, image};
use super::search::{Path, TALL_LEVEL};
use crate::node_lock::NodeGuard;
use crate::retry::{Attempt, retry};
use crate::stored_key::KeyParts;
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool, or a key that is too long: nothing has changed then.
    pub fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let parts = KeyParts::of(key);
        if parts.len > KEY_BYTES_MAX {
            return Err(Error::TooLong { bytes: parts.len });
        }
        self.try_on_path(key, |path, _| match path.found {
            Some(node) => Ok(self.replace(&node, value).map(Some)),
            None => {
                let is_done = self.put(path, key, &parts, value)?;
                Ok(is_done.then_some(None))
            }
        })
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.try_on_path(key, |path, _| match path.found {
            Some(node) => Ok(self.replace(&node, value).map(Some)),
            None => Ok(Some(None)),
        })
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.try_on_path(key, |path, guard| match path.found {
            Some(node) => Ok(self.take_out(path, key, &node, guard)?.map(Some)),
            None => Ok(Some(None)),
        })
    }

    /// Tries with the way to a key until nobody is in the way.
    #[inline]
    fn try_on_path<T>(
        &self,
        key: &K,
        mut attempt: impl FnMut(&Path<'_>, &Guard<'_>) -> Attempt<T>,
    ) -> Result<T> {
        retry(&self.pool, |guard| attempt(&self.find_path(key)?, guard))
    }

    /// Stores another value in a node and returns the one before.
    fn replace(&self, node: &Node<'_>, value: u64) -> Option<u64> {
        let _lock = self.locks.lock(node.at);
        if node.is_dead() {
            return None;
        }
        let before = node.value();
        // ORDER: Release pairs with the acquire in `Node::value`.
        // DURABLE: the update.
        let cell = &node.face.value;
        cell.store_persist(&self.medium, value, Ordering::Release);
        Some(before)
    }

    /// The height that the node of a key is to have.
    pub(super) fn height(&self, key: &K) -> usize {
        let promotions = key.seeded_hash(&self.seed).trailing_zeros() / BITS;
        (promotions as usize + 1).min(LEVELS)
    }

    /// Locks the last nodes before a key on the levels from 0 up, and one node more if there is
    /// one; as many as can be had, at least that of level 0, or none if somebody was in the way.
    fn lock<'a>(
        &'a self,
        path: &Path<'a>,
        node: Option<&Node<'a>>,
        levels: usize,
    ) -> Vec<NodeGuard<'a>> {
        let mut held = Vec::with_capacity(levels + 1);
        held.push(self.locks.lock(path.before[0].at));
        if !self.is_still(path, 0) {
            return Vec::new();
        }
        if let Some(node) = node {
            match self.locks.try_beside(&held, node.at) {
                Some(lock) => held.push(lock),
                None => return Vec::new(),
            }
        }
        for level in 1..levels {
            let lock = self.locks.try_beside(&held, path.before[level].at);
            match lock.filter(|_| self.is_still(path, level)) {
                Some(lock) => held.push(lock),
                None => break,
            }
        }
        held
    }

    /// Whether the last node before a key on a level is in use and leads where it did.
    fn is_still(&self, path: &Path<'_>, level: usize) -> bool {
        let before = &path.before[level];
        !before.is_dead() && before.next(level) == path.next[level]
    }

    /// Puts a new node into the list. False if somebody was in the way.
    fn put(&self, path: &Path<'_>, key: &K, parts: &KeyParts<'_>, value: u64) -> Result<bool> {
        let held = self.lock(path, None, self.height(key));
        let height = held.len();
        if height == 0 {
            return Ok(false);
        }
        let bytes = image(parts, value, &path.next[..height]);
        let space = self.pool.alloc(bytes.len() as u64, 0)?;
        let at = space.offset::<u8>().raw();
        self.medium.write(at, &bytes);
        self.medium.flush_range(at, bytes.len() as u64);
        // DURABLE: the node, before anything leads to it.
        self.medium.fence();
        path.before[0].link_and_flush(&self.medium, 0, at);
        // DURABLE: the insert, before a shortcut leads to it.
        self.medium.fence();
        for level in 1..height {
            path.before[level].link_and_flush(&self.medium, level, at);
            // DURABLE: the shortcut, before one above it, and before what it led to before can be
            // taken out.
            self.medium.fence();
        }
        space.commit::<u8>();
        if let Some(paths) = self.paths.as_ref().filter(|_| height > TALL_LEVEL) {
            paths.add(key, at);
        }
        Ok(true)
    }

    /// Takes a node out of the list, and returns its value.
    fn take_out(
        &self,
        path: &Path<'_>,
        key: &K,
        node: &Node<'_>,
        guard: &Guard<'_>,
    ) -> Attempt<u64> {
        let held = self.lock(path, Some(node), node.height());
        if held.len() != node.height() + 1 {
            return Ok(None);
        }
        let before = node.value();
        let space: POff<u8> = POff::new(node.at);
        let retiring = self.pool.retire(space, 0)?;
        if let Some(paths) = self.paths.as_ref().filter(|_| node.height() > TALL_LEVEL) {
            paths.forget(key);
        }
        for level in (1..node.height()).rev() {
            // After a crash in the middle of its insert it is not on all of its levels.
            if path.next[level] == node.at {
                let next = node.next(level);
                path.before[level].link_and_flush(&self.medium, level, next);
                if level > 1 {
                    // DURABLE: the end of the shortcut, before that of the one below it.
                    self.medium.fence();
                }
            }
        }
        // DURABLE: the note that the node goes, and that no shortcut leads to it.
        self.medium.fence();
        let next = node.next(0);
        path.before[0].link_and_flush(&self.medium, 0, next);
        // DURABLE: the delete.
        self.medium.fence();
        node.give_up(&self.medium);
        retiring.commit(guard);
        Ok(Some(before))
    }
}
