//! Merges buffers into the base, and raises the floor of the logs.
//!
//! # Merge
//! The pairs of a buffer are inserted into the base, one after the other in the order of their
//! positions: in place, as the paper calls it. Each is durable by itself, and the logs have them
//! all, so that a crash in the middle loses nothing. If the base has no space the buffer stays as
//! it is: what was inserted is what the buffer says. Of a node with several ways only the one that
//! is full is merged, for each saves lines of its own.
//!
//! Out of place, if the options say so, the base gets all pairs at once, and FAST&FAIR replaces the
//! leaf that they belong to. Who reads the base meanwhile and finds what is not durable yet does
//! not return it: the node is locked. Pairs of other nodes, whose range is in the same leaf, are
//! the same before and after.
//!
//! # Ranges
//! A part of the base that was split gets a node of its own at the next merge of the node that it
//! came from ([`Layered::cut`]). A node at whose begin there is no part any more is joined with its
//! left neighbour when the floor is raised next.
//!
//! # The floor
//! When few pages of the logs are empty, whoever finds that goes along all nodes, one after the
//! other, and merges their buffers (a *round*). Numbers that were given before the round began are
//! of changes under locks that the round waits for, so afterwards the base has all of them. Then
//! the floor is raised to the last of these numbers, durably, and after that the pages that were
//! full before the round may be filled again.
//!
//! If the base has no space for a pair, the round logs it anew, with a number above the next floor.
//! For that there are always as many empty pages as it takes (I6), so that a full pool does not
//! keep the floor where it is, and deletes and updates go on. If a crash ends the round, its pages
//! are empty again: older records say the same, and these count (I5).

use std::sync::atomic::Ordering;

use gabion_media::pmem::POff;

use super::layout::{MOVING_AT, RootState};
use super::readpath::bound_of;
use super::{Base, Layered};
use crate::Result;
use crate::spoton::buffer::Buffer;
use crate::spoton::mnode::{LockedNode, NodeInit};
use crate::sptree::router::SearchStart;

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// Brings what is in the buffers of a node into the base, durably.
    ///
    /// # Errors
    /// No space, or damage on the medium: what was not brought there is where it was.
    fn merge(&self, node: &LockedNode<'_>) -> Result<()> {
        if self.merges_out_of_place {
            self.base
                .insert_all(&self.pairs_of(self.buffers_of(node)))?;
            self.buffers_of(node).for_each(Buffer::clear);
        } else {
            self.buffers_of(node)
                .try_for_each(|buffer| self.merge_in_place(buffer))?;
        }
        self.release_buffer(node);
        Ok(())
    }

    /// The pairs of some buffers, in the order of their positions.
    fn pairs_of<'a>(&self, buffers: impl Iterator<Item = &'a Buffer>) -> Vec<(u64, u64)> {
        let entries = buffers.flat_map(Buffer::entries);
        let mut pairs: Vec<(u64, u64)> = entries.map(|entry| (entry.key, entry.value)).collect();
        pairs.sort_unstable_by_key(|(key, _)| self.base.position(*key));
        pairs
    }

    /// Brings what is in one buffer into the base, pair by pair.
    fn merge_in_place(&self, buffer: &Buffer) -> Result<()> {
        for (key, value) in self.pairs_of(std::iter::once(buffer)) {
            self.base.insert(&key, value)?;
        }
        buffer.clear();
        Ok(())
    }

    /// Makes room in the buffer of a node for a pair with this position: merges what has to be, and
    /// lets the range of the node follow that of its part. False if the base has no space.
    pub(super) fn merge_if_room(&self, node: &LockedNode<'_>, position: u64) -> Result<bool> {
        let merged = match self.buffer_of(node, position) {
            Some(buffer) if !self.merges_out_of_place => self.merge_in_place(buffer),
            _ => self.merge(node),
        };
        self.release_if_empty(node);
        match merged {
            Ok(()) => self.cut(node).map(|()| true),
            Err(error) if error.is_no_space() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives what lies behind the first part of a node to a new one, after what waits, unless the
    /// base has no space for that.
    fn cut(&self, node: &LockedNode<'_>) -> Result<()> {
        let lkey = self.base.next_part(node.lkey())?;
        let is_within = |lkey: &u64| bound_of(node).is_none_or(|bound| *lkey < bound);
        let Some(lkey) = lkey.filter(is_within) else {
            return Ok(());
        };
        match self.merge(node) {
            Err(error) if error.is_no_space() => return Ok(()),
            merged => merged?,
        }
        let born = NodeInit {
            leaf: 0,
            lkey,
            hkey: node.hkey(),
            next: node.next(),
            prev: node.number + 1,
            count: 0,
            merged: node.last(),
        };
        // Without memory for a node the old one keeps all.
        if let Some(new) = self.nodes.add(born) {
            self.link(&new, node.next());
            node.set_hkey(lkey);
            self.link(node, new.number + 1);
            self.lead_to(&new);
        }
        Ok(())
    }

    /// Makes the node of a link the right neighbour of another one.
    pub(super) fn link(&self, node: &LockedNode<'_>, link: u64) {
        let next = link.checked_sub(1);
        node.link(next.and_then(|next| Some((next, self.nodes.get(next)?))));
    }

    /// Tells the router of a node.
    pub(super) fn lead_to(&self, node: &LockedNode<'_>) {
        let hint = SearchStart {
            node: node.number,
            leaf: 0,
        };
        self.router.add(&node.lkey(), hint);
    }

    /// Raises the floor if the logs need that. Whoever calls holds no lock.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub(super) fn tend(&self) -> Result<()> {
        if self.logs.spare() >= self.reserve {
            return Ok(());
        }
        self.tend_now()
    }

    #[cold]
    fn tend_now(&self) -> Result<()> {
        let _round = self.round.lock();
        // Else somebody else has done it meanwhile.
        if self.logs.spare() < self.reserve {
            self.go_round()?;
        }
        Ok(())
    }

    /// Merges all buffers and gives back what the base has left over.
    ///
    /// # Errors
    /// No space in the pool, or damage on the medium.
    pub fn compact(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        {
            let _round = self.round.lock();
            self.go_round()?;
        }
        self.base.compact()
    }

    /// Sees to it that the base has all changes of now, raises the floor to the last of them, and
    /// lets the pages that were full be filled again. Whoever calls holds `round`.
    pub(super) fn go_round(&self) -> Result<()> {
        let full = self.logs.take_full();
        // ORDER: Acquire: after the lock of the pages, under which those came that are full.
        let upto = self.changes.load(Ordering::Acquire);
        let mut key = Some(0);
        while let Some(lkey) = key {
            let visited = self.visit(lkey);
            key = match visited {
                Ok(next) => next,
                Err(error) => {
                    self.logs.wait_again(full);
                    return Err(error);
                }
            };
        }
        self.raise(upto);
        self.logs.free_again(full);
        Ok(())
    }

    /// Settles the node of a position and joins those behind it that have no part of their own.
    /// Returns where the next node begins.
    pub(super) fn visit(&self, position: u64) -> Result<Option<u64>> {
        let node = self.lock(position);
        self.settle(&node)?;
        while let Some(bound) = bound_of(&node) {
            let part = self.base.next_part(node.lkey())?;
            let is_part = part.is_some_and(|part| part <= bound);
            if is_part || node.buffer().is_some() {
                break;
            }
            let Some(right) = self.lock_right(&node) else {
                break;
            };
            self.settle(&right)?;
            if right.buffer().is_some() {
                break;
            }
            self.join(&node, right);
        }
        Ok(bound_of(&node))
    }

    /// The right neighbour of a node, locked. By its number: a search for it by key may come along
    /// the node itself, whose lock is held. Whoever calls holds `round`, so nobody else buries it.
    fn lock_right(&self, node: &LockedNode<'_>) -> Option<LockedNode<'_>> {
        self.nodes.lock(node.next().checked_sub(1)?)
    }

    /// Empties the buffers of a node, or logs anew what the base has no space for.
    fn settle(&self, node: &LockedNode<'_>) -> Result<()> {
        match self.merge(node) {
            Err(error) if error.is_no_space() => {}
            done => return done,
        }
        for entry in self.buffers_of(node).flat_map(Buffer::entries) {
            let slot = self.logs.slot()?;
            self.fill(node, slot, entry.key, Some(entry.value));
        }
        Ok(())
    }

    /// Joins a node and its right neighbour, both without buffers.
    fn join(&self, node: &LockedNode<'_>, right: LockedNode<'_>) {
        node.set_last(node.last().max(right.last()));
        node.set_hkey(right.hkey());
        self.link(node, right.next());
        self.router.remove(&right.lkey());
        let number = right.number;
        right.bury();
        self.nodes.give_back(number);
    }

    fn raise(&self, floor: u64) {
        let moving: &RootState = self.medium.at(POff::new(self.root + MOVING_AT));
        // DURABLE: the floor, before a change below it is written over.
        // ORDER: Release: as below.
        moving
            .floor
            .store_persist(&self.medium, floor, Ordering::Release);
        // ORDER: Release pairs with the acquire of `slot_if_due`.
        self.floor.store(floor, Ordering::Release);
    }
}
