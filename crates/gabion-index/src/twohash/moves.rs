//! Making room: entries move to the other place of their own, each into a slot that is free or that
//! the one before it has left.
//!
//! A search by breadth finds the shortest chain of movements, without locks. Then the last entry of
//! the chain moves first, so that every entry is there all the time, and each under the locks of
//! its own two places. If somebody was there in between, the search begins anew.

use std::sync::atomic::Ordering;

use super::{CandidateSlots, Scheme, TwoHash, note_of};
use crate::bucket::Bucket;
use crate::line::LineArray;
use crate::lock::Stripes;

/// An entry that is to move.
#[derive(Clone, Copy, Debug)]
struct Move {
    key: u64,
    slot: usize,
    from: u64,
    to: u64,
}

/// A line to which an entry of another one could move.
struct Visited {
    line: u64,
    /// The movement that brings an entry here, and the number of the visit of where it is from.
    by: Option<(Move, usize)>,
    depth: usize,
}

impl<S: Scheme> TwoHash<S> {
    /// Frees a slot of a key with these hashes. False if that takes more movements than are
    /// allowed.
    #[cold]
    pub(super) fn make_room(&self, table: LineArray, hashes: [u64; 2]) -> bool {
        if S::MOVES_MAX == 0 {
            return false;
        }
        let Some(moves) = self.find_moves(table, hashes) else {
            // Tables that are not in use any more have no room for anybody.
            return self.table() != table;
        };
        for step in moves {
            if !self.run_move(table, step) {
                break;
            }
            // ORDER: Relaxed: a number for statistics.
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// As [`TwoHash::make_room`] in a table that nobody else has.
    pub(super) fn make_room_alone(&self, table: LineArray, hashes: [u64; 2]) -> bool {
        let moves = (S::MOVES_MAX > 0).then(|| self.find_moves(table, hashes));
        let Some(moves) = moves.flatten() else {
            return false;
        };
        for step in moves {
            let (from, to) = (self.line(table, step.from), self.line(table, step.to));
            let (Some((key, value)), Some(free)) = (from.entry(step.slot), to.free_slot()) else {
                return false;
            };
            to.put(&self.medium, free, key, value);
            from.remove(&self.medium, step.slot);
        }
        true
    }

    /// The movements that free a slot, the last one first.
    fn find_moves(&self, table: LineArray, hashes: [u64; 2]) -> Option<Vec<Move>> {
        let homes = S::spots(table.bits(), hashes).map(|spot| Visited {
            line: spot.line,
            by: None,
            depth: 0,
        });
        let mut visited: Vec<Visited> = homes.collect();
        let mut next = 0;
        while next < visited.len() && next < S::SEARCHED_MAX {
            let Visited {
                line: from, depth, ..
            } = visited[next];
            self.medium.touch(self.line(table, from));
            for slot in 0..S::Bucket::SLOTS {
                let Some((key, _)) = self.line(table, from).entry(slot) else {
                    continue;
                };
                let mut spots = S::spots(table.bits(), self.hashes(key));
                let Some(CandidateSlots { line: to, .. }) = spots.find(|spot| spot.line != from)
                else {
                    continue;
                };
                let step = Move {
                    key,
                    slot,
                    from,
                    to,
                };
                if self.line(table, to).free_slot().is_some() {
                    return Some(chain(&visited, step, next));
                }
                let is_new = visited.iter().all(|visit| visit.line != to);
                if depth + 1 < S::MOVES_MAX && is_new {
                    visited.push(Visited {
                        line: to,
                        by: Some((step, next)),
                        depth: depth + 1,
                    });
                }
            }
            next += 1;
        }
        None
    }

    /// Moves an entry, unless somebody was there since it was planned.
    fn run_move(&self, table: LineArray, step: Move) -> bool {
        let bits = table.bits();
        let stripe = |line: u64| Stripes::index(line << (64 - bits), S::shared_bits(bits));
        let mut stripes = [stripe(step.from), stripe(step.to)];
        stripes.sort_unstable();
        let [low, high] = stripes;
        let mut first = self.stripes.at(low).lock();
        let mut second = (low != high).then(|| self.stripes.at(high).lock());
        if self.table() != table {
            return false;
        }
        let (from, to) = (self.line(table, step.from), self.line(table, step.to));
        let entry = from.entry(step.slot).filter(|(key, _)| *key == step.key);
        let (Some((key, value)), Some(free)) = (entry, to.free_slot()) else {
            return false;
        };
        let _moving = self.moving.lock();
        let note = note_of(Self::line_at(table, step.from), step.slot);
        // DURABLE: the note, before there are two equal entries.
        // ORDER: Relaxed: read by recovery only.
        let word = &self.state().note;
        word.store_persist(&self.medium, note, Ordering::Relaxed);
        to.put(&self.medium, free, key, value);
        // Readers that looked at the target before must look again before they find the entry gone.
        first.step();
        if let Some(second) = &mut second {
            second.step();
        }
        from.remove(&self.medium, step.slot);
        true
    }
}

/// The movements that end with `last`, which begins at the visit with this number; that one first.
fn chain(visited: &[Visited], last: Move, from: usize) -> Vec<Move> {
    let mut moves = vec![last];
    let mut at = from;
    while let Some((step, before)) = visited[at].by {
        moves.push(step);
        at = before;
    }
    moves
}
