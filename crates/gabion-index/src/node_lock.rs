//! Locks for the nodes of a structure, each found by its node's offset: in DRAM, never on the
//! medium.
//!
//! There are fewer words than nodes, so nodes may share one. That costs a wait or a retry now and
//! then, and needs care only where one thread holds several locks: see [`NodeLocks::try_beside`].
//! A word also counts how often it was held, so that readers who take no lock can tell whether
//! somebody wrote.
//!
//! Whoever writes to a node makes that durable before it lets go of the lock. So a reader who finds
//! the lock free after it has read knows that what it saw is durable, and one who finds it taken
//! must see to that itself.

use std::borrow::Borrow;

use crate::atomic::{AtomicU64, Ordering, count_log};
use crate::lock::Backoff;

/// Locks for the nodes of a structure.
#[derive(Debug)]
pub(crate) struct NodeLocks {
    words: Box<[AtomicU64]>,
}

/// What a lock's word was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockVersion(u64);

/// The lock of a node, held until this is dropped.
#[derive(Debug)]
pub(crate) struct NodeGuard<'a> {
    word: &'a AtomicU64,
    /// Whether another lock of this thread has the same word and frees it.
    is_shared: bool,
}

const LOCKED: u64 = 1;
const ONE_TURN: u64 = 1 << 1;
const TURNS: u64 = ((1 << 31) - 1) << 1;
const ONE_HOLD: u64 = 1 << 32;

impl LockVersion {
    /// Whether somebody held the lock.
    #[inline]
    #[must_use]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// How often the holders have changed their direction, see [`NodeGuard::set_turn`].
    #[inline]
    #[must_use]
    pub(crate) fn turns(self) -> u64 {
        self.0 & TURNS
    }

    /// The direction in which entries move, 0 or 1.
    #[inline]
    #[must_use]
    pub(crate) fn turn(self) -> u64 {
        self.0 >> 1 & 1
    }
}

impl NodeLocks {
    /// Words: 32 KiB, which stay in the cache, and two of a hundred threads seldom meet.
    const WORDS_LOG: u32 = count_log(12);

    /// Locks that are free.
    #[must_use]
    pub(crate) fn new() -> NodeLocks {
        NodeLocks {
            words: (0..1 << Self::WORDS_LOG)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    #[inline]
    fn word(&self, node: u64) -> &AtomicU64 {
        let mixed = node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::WORDS_LOG);
        // The index is below the number of words; the mask tells the compiler.
        &self.words[(mixed & ((1 << Self::WORDS_LOG) - 1)) as usize]
    }

    /// The word of a node as it is now.
    #[inline]
    #[must_use]
    pub(crate) fn stamp(&self, node: u64) -> LockVersion {
        // ORDER: Acquire: what is read of the node afterwards is no older than this. The loads of
        // the node before were acquires and stay before it: if one saw a store of a writer, this
        // sees that writer's lock, or its release.
        LockVersion(self.word(node).load(Ordering::Acquire))
    }

    /// Whether a writer may be between a store to the node and its flush.
    #[inline]
    #[must_use]
    pub(crate) fn is_locked(&self, node: u64) -> bool {
        self.stamp(node).is_locked()
    }

    /// Takes the lock of a node, waiting for its holder. The thread must hold no other one.
    #[inline]
    pub(crate) fn lock(&self, node: u64) -> NodeGuard<'_> {
        let word = self.word(node);
        let mut backoff = Backoff::default();
        while !try_take(word) {
            backoff.wait();
        }
        NodeGuard {
            word,
            is_shared: false,
        }
    }

    /// Takes the lock of a node beside others that this thread holds; none if somebody else has it.
    /// Nobody waits here: two threads could wait for each other.
    #[inline]
    pub(crate) fn try_beside<'a>(
        &'a self,
        held: &[impl Borrow<NodeGuard<'a>>],
        node: u64,
    ) -> Option<NodeGuard<'a>> {
        self.try_beside_all(held.iter().map(Borrow::borrow), node)
    }

    #[inline]
    fn try_beside_all<'a: 'h, 'h>(
        &'a self,
        mut held: impl Iterator<Item = &'h NodeGuard<'a>>,
        node: u64,
    ) -> Option<NodeGuard<'a>> {
        let word = self.word(node);
        let is_shared = held.any(|lock| std::ptr::eq(lock.word, word));
        (is_shared || try_take(word)).then(|| NodeGuard { word, is_shared })
    }

    /// Whether two nodes have one lock.
    pub(crate) fn are_one(&self, one: u64, two: u64) -> bool {
        std::ptr::eq(self.word(one), self.word(two))
    }

    /// As [`NodeLocks::try_beside`], for some nodes; none if somebody else has one of the locks.
    ///
    /// Who makes nodes holds their locks until the allocator knows that they are in use: before
    /// that nobody can give them back to it, nor what came with them.
    pub(crate) fn try_all_beside<'a>(
        &'a self,
        held: &[&NodeGuard<'a>],
        nodes: impl Iterator<Item = u64>,
    ) -> Option<Vec<NodeGuard<'a>>> {
        let mut locks: Vec<NodeGuard<'a>> = Vec::new();
        for node in nodes {
            let lock = self.try_beside_all(held.iter().copied().chain(&locks), node)?;
            locks.push(lock);
        }
        Some(locks)
    }
}

impl Default for NodeLocks {
    fn default() -> NodeLocks {
        NodeLocks::new()
    }
}

#[inline]
fn try_take(word: &AtomicU64) -> bool {
    // ORDER: Relaxed: a hint for the exchange.
    let free = word.load(Ordering::Relaxed);
    // ORDER: Acquire pairs with the release of the last holder.
    free & LOCKED == 0
        && word
            .compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

impl NodeGuard<'_> {
    /// Makes readers that looked before read again, who may have seen half of what was done so far
    /// and would not be told by the one word of a hold that something else is done now.
    pub(crate) fn step(&self) {
        // ORDER: Relaxed: only the holder changes the word.
        let word = self.word.load(Ordering::Relaxed);
        // ORDER: Release pairs with the acquire in `NodeLocks::stamp`: who sees this sees what was
        // done. The stores of what follows are releases and come after.
        self.word
            .store(word.wrapping_add(ONE_HOLD), Ordering::Release);
    }

    /// Says in which direction, 0 or 1, entries move from now on, for readers that look at them
    /// one after the other and must not miss those that pass them by.
    #[inline]
    pub(crate) fn set_turn(&self, turn: u64) {
        // ORDER: Relaxed: only the holder changes the word.
        let word = self.word.load(Ordering::Relaxed);
        if LockVersion(word).turn() != turn {
            let turns = word.wrapping_add(ONE_TURN) & TURNS;
            // ORDER: Release: the moves of the other direction come before. The stores of the moves
            // that follow are releases and come after.
            self.word.store(word & !TURNS | turns, Ordering::Release);
        }
    }
}

impl Drop for NodeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_shared {
            // ORDER: Relaxed: only the holder changes the word.
            let word = self.word.load(Ordering::Relaxed) & !LOCKED;
            // ORDER: Release: pairs with the acquires in `try_take` and `NodeLocks::stamp`.
            self.word
                .store(word.wrapping_add(ONE_HOLD), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_whether_somebody_wrote() {
        let locks = NodeLocks::new();
        let before = locks.stamp(64);
        assert!(!before.is_locked());
        let lock = locks.lock(64);
        assert!(locks.is_locked(64));
        let none: [NodeGuard<'_>; 0] = [];
        assert!(locks.try_beside(&none, 64).is_none());
        let again = locks.try_beside(&[&lock], 64).expect("it is held here");
        drop(again);
        assert!(locks.is_locked(64));
        lock.set_turn(1);
        lock.set_turn(1);
        let turned = locks.stamp(64);
        lock.step();
        let stepped = locks.stamp(64);
        assert!(stepped.is_locked() && stepped != turned);
        assert_eq!(stepped.turns(), turned.turns());
        drop(lock);
        let after = locks.stamp(64);
        assert!(!after.is_locked() && after != before);
        assert_eq!((before.turn(), after.turn()), (0, 1));
        locks.lock(64).set_turn(0);
        assert_ne!(locks.stamp(64).turns(), before.turns());
        assert_eq!(locks.stamp(64).turn(), 0);
    }

    /// Nodes with one word are no hindrance to each other, and a lock that somebody else has leaves
    /// none behind.
    #[test]
    fn all_locks_are_taken_or_none() {
        let locks = NodeLocks::new();
        let held = locks.lock(64);
        let nodes = [128, 64, 192, 128];
        let all = locks.try_all_beside(&[&held], nodes.into_iter());
        assert_eq!(all.expect("they are free").len(), 4);
        assert!(locks.is_locked(64) && !locks.is_locked(128) && !locks.is_locked(192));
        let other = locks.lock(192);
        assert!(locks.try_all_beside(&[&held], nodes.into_iter()).is_none());
        drop((held, other));
        assert!(nodes.into_iter().all(|node| !locks.is_locked(node)));
    }

    #[test]
    fn a_turn_wraps_without_touching_its_neighbours() {
        let locks = NodeLocks::new();
        locks.word(64).store(ONE_HOLD | TURNS, Ordering::Relaxed);
        let lock = locks.lock(64);
        lock.set_turn(0);
        assert!(locks.is_locked(64));
        drop(lock);
        assert_eq!(locks.stamp(64), LockVersion(2 * ONE_HOLD));
    }

    #[test]
    fn nodes_are_locked_by_one_thread_at_a_time() {
        let locks = NodeLocks::new();
        let (one, two) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let lock = locks.lock(128);
                        // ORDER: Relaxed: under the lock.
                        let value = one.load(Ordering::Relaxed);
                        assert_eq!(value, two.load(Ordering::Relaxed));
                        one.store(value + 1, Ordering::Relaxed);
                        two.store(value + 1, Ordering::Relaxed);
                        drop(lock);
                    }
                });
            }
        });
        // ORDER: Relaxed: the threads are gone.
        assert_eq!(one.load(Ordering::Relaxed), 30_000);
    }
}
