//! Whether a history is what its isolation promises.
//!
//! # Idea
//! Each write has a number of its own, so each read tells which write it saw. From that, and from
//! the order in which the writes of a key took effect, follows which transaction comes before which
//! (Adya, 1999): it wrote what the other one overwrote, wrote what the other one read, or read what
//! the other one overwrote. An anomaly is a cycle, and its kind says which of these it is made of.
//!
//! # The order of the writes of a key
//! A list tells it: its longest value holds all writes, also those that were appended without a
//! look at it. Those of a register are in the order of
//! their commits, where one had returned before the other was called; where they overlap nothing
//! is known, and nothing follows from them. So no history of a sound store has a cycle, and one
//! thread, whose calls do not overlap, knows all.
//!
//! A key that is not there does not say which delete took it away; a range read says so of each key
//! in it that it did not meet. If only one delete can have been the last one, it counts as what was
//! read. If several can, nothing follows: a commit may take a key that is not there for
//! the same as before, though somebody put and deleted it in between. A delete of what was not
//! there has changed nothing, so nothing follows from that either.
//!
//! # Kinds of cycles
//! | anomaly | made of |
//! |---|---|
//! | G0 | writes that overwrite each other |
//! | G1c | these, and reads of what was written |
//! | G-single | these, and one read that was overwritten |
//! | G-nonadjacent | several of them, no two in a row |
//! | update skew | writes, reads of what was written, and reads for update that were overwritten |
//! | G2-item | any number, of keys |
//! | G2 | the same, of ranges too |
//! | stale | one of these, if what has ended counts as before what begins later |
//!
//! Snapshot isolation allows the cycles with two reads in a row that were overwritten, and those
//! with one behind a merge into a key that was not read: merges side by side are no conflict.

use std::collections::HashMap;

use gabion::Isolation;

use super::graph::{Graph, Kind, Search};
use super::record::{By, History, Interval, Key, Read, Record, is_list};

/// What is wrong with a history, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anomaly {
    /// A commit that was refused by a key that nobody has written meanwhile.
    Unfounded,
    /// A read of what no committed transaction has written.
    G1a,
    /// A read of what its writer has overwritten itself.
    G1b,
    /// A list that lacks an element that another value of it has.
    LostUpdate,
    G0,
    G1c,
    GSingle,
    GNonadjacent,
    Stale,
    UpdateSkew,
    G2Item,
    G2,
    /// A cycle that snapshots may have, closed by time.
    StaleSkew,
}

impl Anomaly {
    pub(super) fn is_allowed(self, isolation: Isolation) -> bool {
        let is_skew = matches!(self, Anomaly::G2Item | Anomaly::G2 | Anomaly::StaleSkew);
        isolation == Isolation::Snapshot && is_skew
    }
}

use Kind::{RangeWrite, ReadWrite, Time, UpdateWrite, WriteMerge, WriteRead, WriteWrite};

/// In this order, as some kinds include others.
const SEARCHES: [(Anomaly, &[Kind], bool); 8] = [
    (Anomaly::G0, ALL.split_at(2).0, true),
    (Anomaly::G1c, ALL.split_at(3).0, true),
    (Anomaly::GSingle, ALL_BUT_TIME, false),
    (Anomaly::Stale, ALL, false),
    (Anomaly::UpdateSkew, ALL.split_at(4).0, true),
    (Anomaly::G2Item, ALL.split_at(5).0, true),
    (Anomaly::G2, ALL_BUT_TIME, true),
    (Anomaly::StaleSkew, ALL, true),
];

const ALL: &[Kind] = &[
    WriteWrite,
    WriteMerge,
    WriteRead,
    UpdateWrite,
    ReadWrite,
    RangeWrite,
    Time,
];
const ALL_BUT_TIME: &[Kind] = ALL.split_at(6).0;

/// The worst anomaly of a history, with words that tell of it.
pub(super) fn worst(history: &History) -> Option<(Anomaly, String)> {
    if let Some(record) = unfounded(history) {
        return Some((Anomaly::Unfounded, format!("{record:?}")));
    }
    let versions = match Versions::new(history) {
        Ok(versions) => versions,
        Err(found) => return Some(found),
    };
    let graph = versions.graph(history);
    SEARCHES.iter().find_map(|(anomaly, kinds, adjacent)| {
        let search = Search {
            kinds,
            adjacent: *adjacent,
        };
        let cycle = graph.shortest_cycle(search)?;
        let antis = cycle.iter().filter(|(_, edge)| edge.kind.is_anti()).count();
        let anomaly = match anomaly {
            Anomaly::GSingle if antis > 1 => Anomaly::GNonadjacent,
            anomaly => *anomaly,
        };
        let mut words = String::new();
        for (node, edge) in cycle {
            let key = edge
                .key
                .map_or(String::new(), |key| format!(" of key {key}"));
            if let Some(record) = history.records.get(node) {
                words += &format!("\n  {node}: {record:?}\n    {:?}{key}", edge.kind);
            }
        }
        Some((anomaly, words))
    })
}

/// What was refused without a reason.
fn unfounded(history: &History) -> Option<&Record> {
    let committed = history.records.iter().filter(|record| record.is_committed);
    history.records.iter().find(|refused| {
        let meanwhile = |other: &&Record| other.end.end > refused.begin.call;
        let mut writes = committed
            .clone()
            .filter(meanwhile)
            .flat_map(|other| &other.writes);
        let reason = refused.refused_by;
        reason.is_some_and(|key| writes.all(|write| write.key != key))
    })
}

/// What a committed transaction made of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// Another one is later if its first moment is after this one's last: positions in a list, or
    /// ticks.
    first: u64,
    last: u64,
    number: u64,
    is_delete: bool,
    /// Whether its writer merged into the key and had not read it.
    is_merge: bool,
    /// Whether it surely changed something; a delete of what was not there does not.
    is_change: bool,
    /// Nobody for what the key was in the beginning, which is no change.
    writer: usize,
}

/// The versions of all keys.
struct Versions(HashMap<Key, Vec<Version>>);

impl Versions {
    /// Those of a history whose reads and lists are sound.
    fn new(history: &History) -> Result<Versions, (Anomaly, String)> {
        let lists = longest_lists(history)?;
        let mut writers = HashMap::new();
        let mut versions: HashMap<Key, Vec<Version>> = HashMap::new();
        let committed = history.records.iter().enumerate();
        for (writer, record) in committed.filter(|(_, record)| record.is_committed) {
            for (at, write) in record.writes.iter().enumerate() {
                let is_last = record.writes[at + 1..]
                    .iter()
                    .all(|other| other.key != write.key);
                writers.insert(write.number, is_last);
                if !is_last {
                    continue;
                }
                let place = |list: &Vec<u64>| list.iter().position(|own| *own == write.number);
                let place = lists.get(&write.key).and_then(place);
                let (first, last) = match place {
                    Some(place) => (place as u64 + 1, place as u64 + 1),
                    None => (record.end.call, record.end.end),
                };
                versions
                    .entry(write.key)
                    .or_insert_with(|| vec![BEGINNING])
                    .push(Version {
                        first,
                        last,
                        number: write.number,
                        is_delete: write.is_delete(),
                        is_merge: record.only_merges(write.key),
                        is_change: !write.is_delete(),
                        writer,
                    });
            }
        }
        for record in &history.records {
            for read in &record.reads {
                let unknown = read
                    .value
                    .iter()
                    .any(|number| !writers.contains_key(number));
                let is_last = |number| writers.get(number).copied().unwrap_or(true);
                let anomaly = match read.value.last() {
                    _ if unknown => Anomaly::G1a,
                    Some(last) if !is_last(last) => Anomaly::G1b,
                    _ => continue,
                };
                return Err((anomaly, format!("{read:?} of {record:?}")));
            }
        }
        versions.values_mut().for_each(judge_deletes);
        Ok(Versions(versions))
    }

    /// What depends on what. After the transactions come the moments at which they began.
    fn graph(&self, history: &History) -> Graph {
        let records = &history.records;
        let mut graph = Graph::new(2 * records.len());
        for (key, versions) in &self.0 {
            for version in versions.iter().filter(|version| version.is_change) {
                for next in following(versions, version) {
                    let kind = if next.is_merge {
                        WriteMerge
                    } else {
                        WriteWrite
                    };
                    graph.add(version.writer, kind, next.writer, Some(*key));
                }
            }
        }
        let committed = records
            .iter()
            .enumerate()
            .filter(|(_, record)| record.is_committed);
        for (reader, record) in committed.clone() {
            for read in &record.reads {
                self.add_read(&mut graph, history.isolation, (reader, record), read);
            }
        }
        let mut moments: Vec<usize> = committed.map(|(at, _)| at).collect();
        moments.sort_by_key(|at| records[*at].begin.call);
        for (place, at) in moments.iter().enumerate() {
            graph.add(records.len() + place, Time, *at, None);
            if place > 0 {
                graph.add(records.len() + place - 1, Time, records.len() + place, None);
            }
            let is_before = |other: &usize| records[*other].begin.call <= records[*at].end.end;
            let later = moments.partition_point(is_before);
            if later < moments.len() {
                graph.add(*at, Time, records.len() + later, None);
            }
        }
        graph
    }

    fn add_read(
        &self,
        graph: &mut Graph,
        isolation: Isolation,
        (reader, record): (usize, &Record),
        read: &Read,
    ) {
        let Some(versions) = self.0.get(&read.key) else {
            return;
        };
        let found = match read.value.last() {
            Some(number) => versions.iter().find(|version| version.number == *number),
            None => absent(versions, window(record, read, isolation)),
        };
        let Some(found) = found else {
            return;
        };
        if found.is_change {
            graph.add(found.writer, WriteRead, reader, Some(read.key));
        }
        let kind = match read.by {
            By::Update if !record.writes.is_empty() => UpdateWrite,
            By::Key | By::Update => ReadWrite,
            By::Range => RangeWrite,
        };
        for next in following(versions, found) {
            graph.add(reader, kind, next.writer, Some(read.key));
        }
    }
}

const BEGINNING: Version = Version {
    first: 0,
    last: 0,
    number: 0,
    is_delete: true,
    is_merge: false,
    is_change: false,
    writer: usize::MAX,
};

/// Says of each delete whether it changed something, and forgets those that surely did not.
fn judge_deletes(versions: &mut Vec<Version>) {
    let all = versions.clone();
    versions.retain_mut(|version| {
        if version.number == BEGINNING.number || !version.is_delete {
            return true;
        }
        let is_before = |one: &Version, other: &Version| one.last < other.first;
        let before = all.iter().filter(|other| is_before(other, version));
        let is_last = |one: &&Version| !before.clone().any(|other| is_before(one, other));
        let beside = all.iter().filter(|other| {
            let is_apart = is_before(other, version) || is_before(version, other);
            !is_apart && other.number != version.number
        });
        let mut what_it_met = before.clone().filter(is_last).chain(beside);
        let is_change = what_it_met.clone().all(|other| !other.is_delete);
        let may_be_one = what_it_met.any(|other| !other.is_delete);
        version.is_change = is_change;
        may_be_one
    });
}

/// The changes that surely come after a version, without those that surely come after these.
fn following<'v>(
    versions: &'v [Version],
    version: &Version,
) -> impl Iterator<Item = &'v Version> + use<'v> {
    let last = version.last;
    let changes = versions.iter().filter(|version| version.is_change);
    let later = changes.filter(move |later| later.first > last);
    let nearest = later.clone().map(|later| later.last).min().unwrap_or(0);
    later.filter(move |later| later.first <= nearest)
}

/// When what a transaction did not find was not there, as far as its commit has looked.
fn window(record: &Record, read: &Read, isolation: Isolation) -> Interval {
    let is_written = record.writes.iter().any(|write| write.key == read.key);
    let is_checked = isolation == Isolation::Serializable || read.by == By::Update || is_written;
    let end = match is_checked && !record.writes.is_empty() {
        true => record.end.end,
        false => record.begin.end,
    };
    Interval {
        call: record.begin.call,
        end,
    }
}

/// The version of a key that was not there in a window, if it is clear which.
fn absent(versions: &[Version], window: Interval) -> Option<&Version> {
    let deletes = versions.iter().filter(|version| version.is_delete);
    let begun = deletes.filter(|version| version.first <= window.end);
    let was_there = |version: &&Version| {
        let gone = following(versions, version).any(|next| next.last < window.call);
        !gone
    };
    let mut possible = begun.clone().filter(was_there);
    match (possible.next(), possible.next()) {
        (Some(_), Some(_)) => None,
        (Some(one), None) => Some(one),
        // It should have been there.
        (None, _) => begun.max_by_key(|version| version.last),
    }
}

/// The longest value of each list; an error where another one is no beginning of it.
fn longest_lists(history: &History) -> Result<HashMap<Key, Vec<u64>>, (Anomaly, String)> {
    let mut values: HashMap<Key, Vec<&Vec<u64>>> = HashMap::new();
    for record in history.records.iter().filter(|record| record.is_committed) {
        let reads = record.reads.iter().map(|read| (read.key, &read.value));
        let writes = record.writes.iter();
        let writes = writes.filter_map(|write| Some((write.key, write.value.as_ref()?)));
        for (key, value) in reads.chain(writes).filter(|(key, _)| is_list(*key)) {
            values.entry(key).or_default().push(value);
        }
    }
    let mut longest = HashMap::new();
    for (key, mut values) in values {
        values.sort_by_key(|value| value.len());
        let is_lost = |pair: &&[&Vec<u64>]| !pair[1].starts_with(pair[0]);
        if let Some(pair) = values.windows(2).find(is_lost) {
            return Err((Anomaly::LostUpdate, format!("key {key}: {pair:?}")));
        }
        longest.extend(values.last().map(|value| (key, (*value).clone())));
    }
    Ok(longest)
}
