//! Rounds of a catch-up, one by one, while the writer is between two steps: its log is further than
//! what the follower can read of its manifest.

use std::sync::Arc;

use gabion_media::{Disk, SimDisk};

use super::{Round, Wip};
use crate::engine::ssd::SsdEngine;
use crate::engine::wip::WipKeyspace;
use crate::log::Lsn;
use crate::{AddI64, KeyspaceOptions, Options};

fn options() -> Options {
    Options::default().background_threads(0)
}

/// A writer with two keyspaces and a write, and a follower of a copy of its files.
struct Pair {
    from: SimDisk,
    writer: Arc<Wip>,
    notes: Arc<WipKeyspace>,
    to: SimDisk,
    follower: Arc<Wip>,
}

impl Pair {
    fn new() -> Pair {
        let (from, to) = (SimDisk::new(), SimDisk::new());
        let writer = Wip::open(Disk::simulated(&from), options()).unwrap();
        let notes = writer.create_keyspace("notes").unwrap();
        writer.create_keyspace("stones").unwrap();
        writer.put_for_tests(&notes, b"first", b"1");
        copy(&from, &to, "");
        let follower = Wip::follow(Disk::simulated(&to), options()).unwrap();
        assert_eq!(follower.visible(), writer.visible());
        Pair {
            from,
            writer,
            notes,
            to,
            follower,
        }
    }

    /// One round of the follower's catch-up.
    fn round(&self) -> Round {
        let mut following = self.follower.following.as_ref().unwrap().lock();
        let round = self.follower.catch_up_once(&mut following, Lsn::default());
        round.unwrap()
    }

    /// Whether the follower has the last note, once it has all files and catches up.
    fn assert_catches_up(&self) {
        copy(&self.from, &self.to, "");
        self.follower.catch_up().unwrap();
        assert_eq!(self.follower.visible(), self.writer.visible());
        let notes = self.follower.keyspaces.find("notes").unwrap();
        let last = self.follower.get(&notes, b"last", None).unwrap();
        assert_eq!(last.as_deref(), Some(&b"1"[..]));
    }
}

/// Copies the files whose names end so.
fn copy(from: &SimDisk, to: &SimDisk, suffix: &str) {
    for name in from.names() {
        if name.ends_with(suffix) {
            to.set_raw(&name, from.raw(&name).unwrap());
        }
    }
}

/// A drop whose record found no room leaves a number without one: what is behind it may need a
/// manifest that has the drop.
#[test]
fn a_gap_in_the_numbers_ends_a_round() {
    let pair = Pair::new();
    let before = pair.writer.visible();
    {
        let mut half = pair.writer.lock_write_half();
        let seq = half.take_number().unwrap();
        let segment = half.segment();
        pair.writer.publish(seq, segment);
    }
    pair.writer.put_for_tests(&pair.notes, b"last", b"1");
    copy(&pair.from, &pair.to, ".log");
    assert!(matches!(pair.round(), Round::Before(_)));
    assert_eq!(pair.follower.visible(), before);
    pair.assert_catches_up();
}

/// What an event tells is in a manifest that the follower has not read.
#[test]
fn an_event_that_the_manifest_does_not_know_ends_a_round() {
    for event in ["made", "options", "dropped", "ingested"] {
        let pair = Pair::new();
        let (writer, before) = (&pair.writer, pair.writer.visible());
        let counted = KeyspaceOptions::default().merge(AddI64);
        match event {
            "made" => drop(writer.create_keyspace("more stones").unwrap()),
            "options" => drop(writer.keyspace_with("stones", Some(&counted)).unwrap()),
            "dropped" => assert!(writer.drop_keyspace("stones").unwrap()),
            _ => {
                let stones = writer.keyspaces.find("stones").unwrap();
                let mut ingest = writer.ingest(&stones).unwrap();
                ingest.add(b"granite", b"1").unwrap();
                ingest.finish(0).unwrap();
            }
        }
        writer.put_for_tests(&pair.notes, b"last", b"1");
        copy(&pair.from, &pair.to, ".log");
        assert!(matches!(pair.round(), Round::Before(_)), "{event}");
        assert_eq!(pair.follower.visible(), before, "{event}");
        assert!(pair.follower.keyspaces.find("stones").is_some(), "{event}");
        pair.assert_catches_up();
        let (own, its) = (&pair.follower.keyspaces, &writer.keyspaces);
        assert_eq!(own.names(), its.names(), "{event}");
    }
}

/// What was logged again stands behind writes with higher numbers; so who begins anew installs
/// nothing of a log that it has not read to its end.
#[test]
fn a_follower_that_begins_anew_installs_nothing_in_part() {
    let pair = Pair::new();
    let before = pair.writer.visible();
    pair.writer.put_for_tests(&pair.notes, b"in between", b"1");
    assert!(pair.writer.drop_keyspace("stones").unwrap());
    pair.writer.put_for_tests(&pair.notes, b"last", b"1");
    copy(&pair.from, &pair.to, ".log");
    let following = pair.follower.following.as_ref().unwrap();
    following.lock().restarts = true;
    assert!(matches!(pair.round(), Round::Before(_)));
    assert_eq!(pair.follower.visible(), before);
    assert!(following.lock().restarts, "it begins anew once more");
    pair.assert_catches_up();
}
