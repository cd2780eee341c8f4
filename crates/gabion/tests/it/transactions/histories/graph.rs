//! A graph of what depends on what, and its shortest cycles.

use std::collections::VecDeque;

use super::record::Key;

/// Why a transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Both wrote a key, this one first.
    WriteWrite,
    /// The same, and the other one merged into the key and had not read it.
    WriteMerge,
    /// The other one read what this one wrote.
    WriteRead,
    /// This one read a key for update and committed before the other one wrote it.
    UpdateWrite,
    /// This one read a key before the other one wrote it.
    ReadWrite,
    /// The same, and it read a range with the key in it.
    RangeWrite,
    /// It had ended when the other one began.
    Time,
}

impl Kind {
    pub(super) fn is_anti(self) -> bool {
        matches!(self, Kind::UpdateWrite | Kind::ReadWrite | Kind::RangeWrite)
    }

    /// Whether the other one may have begun before this one ended, so that snapshots may have it
    /// read what is overwritten.
    fn may_overlap(self) -> bool {
        self.is_anti() || self == Kind::WriteMerge
    }
}

/// The way to a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) kind: Kind,
    /// The key by which they depend on each other, except in time.
    pub(super) key: Option<Key>,
}

/// Nodes and what comes after them.
pub(super) struct Graph(Vec<Vec<Edge>>);

/// Which cycles are looked for.
#[derive(Clone, Copy)]
pub(super) struct Search {
    pub(super) kinds: &'static [Kind],
    /// Whether a read that was overwritten may follow another one, or a merge.
    pub(super) adjacent: bool,
}

/// A node, and whether no read that was overwritten may follow.
type State = usize;

impl Graph {
    pub(super) fn new(nodes: usize) -> Graph {
        Graph(vec![Vec::new(); nodes])
    }

    pub(super) fn add(&mut self, from: usize, kind: Kind, to: usize, key: Option<Key>) {
        if from != to {
            self.0[from].push(Edge { to, kind, key });
        }
    }

    fn next(&self, state: State, search: Search) -> impl Iterator<Item = (State, Edge)> {
        let is_last = state % 2 == 1;
        let edges = self.0[state / 2].iter().copied();
        let edges = edges.filter(move |edge| {
            search.kinds.contains(&edge.kind) && !(is_last && edge.kind.is_anti())
        });
        edges.map(move |edge| {
            let is_last = !search.adjacent && edge.kind.may_overlap();
            (2 * edge.to + usize::from(is_last), edge)
        })
    }

    /// The shortest cycle of a kind, if there is any: its nodes, each with the edge to the next.
    pub(super) fn shortest_cycle(&self, search: Search) -> Option<Vec<(usize, Edge)>> {
        let left = self.not_before_all_cycles(search);
        let mut shortest: Option<Vec<(usize, Edge)>> = None;
        for start in left {
            let shorter_than = shortest.as_ref().map_or(usize::MAX, Vec::len);
            shortest = self.cycle_of(start, search, shorter_than).or(shortest);
        }
        shortest
    }

    /// Takes away what no other state leads to, again and again; what is left holds all cycles.
    fn not_before_all_cycles(&self, search: Search) -> Vec<State> {
        let states = 2 * self.0.len();
        let mut sources = vec![0_usize; states];
        for state in 0..states {
            self.next(state, search)
                .for_each(|(to, _)| sources[to] += 1);
        }
        let mut free: Vec<State> = (0..states).filter(|state| sources[*state] == 0).collect();
        let mut is_free = vec![false; states];
        while let Some(state) = free.pop() {
            is_free[state] = true;
            for (to, _) in self.next(state, search) {
                sources[to] -= 1;
                if sources[to] == 0 {
                    free.push(to);
                }
            }
        }
        (0..states).filter(|state| !is_free[*state]).collect()
    }

    /// The shortest way from a state back to it.
    fn cycle_of(
        &self,
        start: State,
        search: Search,
        shorter_than: usize,
    ) -> Option<Vec<(usize, Edge)>> {
        let mut came_from: Vec<Option<(State, Edge)>> = vec![None; 2 * self.0.len()];
        let mut waiting = VecDeque::from([(start, 1)]);
        while let Some((state, length)) = waiting.pop_front() {
            if length >= shorter_than {
                return None;
            }
            for (to, edge) in self.next(state, search) {
                if came_from[to].is_none() {
                    came_from[to] = Some((state, edge));
                    waiting.push_back((to, length + 1));
                }
            }
            if came_from[start].is_some() {
                break;
            }
        }
        let mut cycle = Vec::new();
        let mut state = start;
        loop {
            let (from, edge) = came_from[state]?;
            cycle.push((from / 2, edge));
            state = from;
            if state == start {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }
}
