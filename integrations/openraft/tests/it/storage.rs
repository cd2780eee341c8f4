//! The storage by itself: openraft's suite, losses of power, snapshots.

use std::collections::BTreeMap;

use gabion::{Db, Durability, Options, Tuning};
use gabion_media::{Disk, SimDisk, Tear};
use gabion_openraft::{LogStore, StateMachine, open};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, RaftSnapshotBuilder,
    StorageError, Vote,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::app::{Registers, Swap, Types, text};

type Log = LogStore<Types>;
type Machine = StateMachine<Types, Registers>;

struct InDirectories;

impl StoreBuilder<Types, Log, Machine, TempDir> for InDirectories {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError<u64>> {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("store")).unwrap();
        let (log, machine) = open(&db, dir.path().join("snapshots"), Registers).unwrap();
        Ok((dir, log, machine))
    }
}

#[test]
fn the_suite_of_openraft_passes() {
    Suite::test_all(InDirectories).unwrap();
}

/// The storage of a node on a disk that loses its power.
struct Node {
    sim: SimDisk,
    db: Db,
    snapshots: TempDir,
    log: Log,
    machine: Machine,
}

impl Node {
    fn on(sim: &SimDisk) -> Node {
        // Without threads and intervals nothing is synced but by the storage.
        let options = Options::default()
            .durability(Durability::Buffered)
            .background_threads(0)
            .log_bytes_max(8 << 20)
            .tuning(Tuning::default().memtable_budget_bytes(8 << 20));
        let db = Db::open_on(Disk::simulated(sim), options).unwrap();
        let snapshots = tempfile::tempdir().unwrap();
        let (log, machine) = open(&db, snapshots.path(), Registers).unwrap();
        Node {
            sim: sim.clone(),
            db,
            snapshots,
            log,
            machine,
        }
    }

    fn new() -> Node {
        Node::on(&SimDisk::recording())
    }

    fn after_power_cut(&self, seed: u64, style: Tear) -> Node {
        Node::on(&self.sim.power_cut(self.sim.ops(), seed, style))
    }

    async fn apply(&mut self, indexes: impl IntoIterator<Item = u64>) {
        let entries: Vec<_> = indexes.into_iter().map(entry).collect();
        self.machine.apply(entries).await.unwrap();
    }

    /// The index of the last applied entry, and the registers.
    async fn state(&mut self) -> (Option<u64>, BTreeMap<String, String>) {
        let (applied, _) = self.machine.applied_state().await.unwrap();
        let pairs: Result<Vec<_>, _> = self.machine.reader().read(|state| state.iter().collect());
        let pairs = pairs.unwrap().into_iter();
        let registers = pairs.map(|(name, value)| (text(&name), text(&value)));
        (applied.map(|id| id.index), registers.collect())
    }
}

fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

/// One of three registers is given the index of the entry.
fn swap(index: u64) -> Swap {
    Swap {
        name: format!("register {}", index % 3),
        value: index.to_string(),
    }
}

fn entry(index: u64) -> Entry<Types> {
    Entry {
        log_id: id(index),
        payload: EntryPayload::Normal(swap(index)),
    }
}

/// The registers after the entries up to one.
fn registers_at(applied: Option<u64>) -> BTreeMap<String, String> {
    let swaps = (1..=applied.unwrap_or(0)).map(swap);
    swaps.map(|swap| (swap.name, swap.value)).collect()
}

#[tokio::test]
async fn votes_and_entries_survive_a_power_cut_once_they_are_acknowledged() {
    let mut node = Node::new();
    for number in 1..=4 {
        let vote = Vote::new(number, 1);
        node.log.save_vote(&vote).await.unwrap();
        let mut cut = node.after_power_cut(number, Tear::DropAll);
        assert_eq!(cut.log.read_vote().await.unwrap(), Some(vote));

        node.log.blocking_append([entry(number)]).await.unwrap();
        node.log.save_committed(Some(id(number))).await.unwrap();
        let mut cut = node.after_power_cut(number, Tear::DropAll);
        let left = cut.log.try_get_log_entries(..).await.unwrap();
        assert_eq!(left, (1..=number).map(entry).collect::<Vec<_>>());
        // This is of no promise. Were it there, the cut would not cut.
        let committed = cut.log.read_committed().await.unwrap();
        assert_eq!(committed, (number > 1).then(|| id(number - 1)));
    }
}

#[tokio::test]
async fn truncated_and_purged_entries_are_gone_and_the_rest_is_there_after_a_restart() {
    let mut node = Node::new();
    node.log.blocking_append((1..=9).map(entry)).await.unwrap();
    node.log.truncate(id(7)).await.unwrap();
    node.log.purge(id(2)).await.unwrap();
    node.log.save_vote(&Vote::new(2, 1)).await.unwrap();
    let mut cut = node.after_power_cut(7, Tear::DropAll);
    let left = cut.log.try_get_log_entries(..).await.unwrap();
    assert_eq!(left, (3..=6).map(entry).collect::<Vec<_>>());
    let state = cut.log.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(id(2)));
    assert_eq!(state.last_log_id, Some(id(6)));
}

/// Entries are applied without a sync, so a power cut may take some of them, but not a part of one,
/// and not the note of how far they were applied.
#[tokio::test]
async fn the_state_after_a_power_cut_is_that_of_its_last_applied_entry() {
    let mut node = Node::new();
    let mut seen = Vec::new();
    for number in 1..=20 {
        node.apply([2 * number - 1, 2 * number]).await;
        for (seed, style) in [(number, Tear::Random512), (number, Tear::DropAll)] {
            let (applied, registers) = node.after_power_cut(seed, style).state().await;
            assert_eq!(registers, registers_at(applied), "{number}, {applied:?}");
            seen.push(applied);
        }
        if number % 5 == 0 {
            // An entry that is acknowledged comes after what was applied before it.
            node.log
                .blocking_append([entry(100 + number)])
                .await
                .unwrap();
            let mut cut = node.after_power_cut(number, Tear::DropAll);
            assert_eq!(cut.state().await.0, Some(2 * number));
        }
    }
    assert!(seen.contains(&None), "each write was synced: {seen:?}");
}

/// Sends the last snapshot of a node to another, or only its first bytes.
async fn send(from: &mut Node, to: &mut Node, bytes_max: u64) -> Result<(), StorageError<u64>> {
    let current = from.machine.get_current_snapshot().await?;
    let mut snapshot = current.expect("the node has built one");
    let mut received = to.machine.begin_receiving_snapshot().await?;
    let mut part = (&mut *snapshot.snapshot).take(bytes_max);
    tokio::io::copy(&mut part, &mut *received).await.unwrap();
    received.flush().await.unwrap();
    to.machine.install_snapshot(&snapshot.meta, received).await
}

#[tokio::test]
async fn a_snapshot_is_of_the_moment_at_which_it_was_built() {
    let mut from = Node::new();
    from.apply(1..=10).await;
    let built = from.machine.build_snapshot().await.unwrap();
    assert_eq!(built.meta.last_log_id, Some(id(10)));
    from.apply(11..=20).await;

    // A state that has a register more than the snapshot.
    let mut to = Node::new();
    let other = Swap {
        name: "other".to_owned(),
        value: "stone".to_owned(),
    };
    let other = Entry {
        log_id: id(1),
        payload: EntryPayload::Normal(other),
    };
    to.machine.apply([other]).await.unwrap();
    let reader = to.machine.reader();
    send(&mut from, &mut to, u64::MAX).await.unwrap();
    assert_eq!(to.state().await, (Some(10), registers_at(Some(10))));
    let other = reader.read(|state| state.get("other").unwrap());
    assert_eq!(other, None, "a reader from before reads the new state");
    let kept = to.machine.get_current_snapshot().await.unwrap();
    assert_eq!(kept.unwrap().meta, built.meta);

    let mut cut = to.after_power_cut(7, Tear::DropAll);
    assert_eq!(cut.state().await, (Some(10), registers_at(Some(10))));
    assert!(cut.machine.get_current_snapshot().await.unwrap().is_none());
    cut.apply(11..=12).await;
    assert_eq!(cut.state().await, (Some(12), registers_at(Some(12))));
}

#[tokio::test]
async fn a_snapshot_that_is_cut_off_changes_nothing() {
    let (mut from, mut to) = (Node::new(), Node::new());
    from.apply(1..=10).await;
    from.machine.build_snapshot().await.unwrap();
    to.apply(1..=3).await;
    let whole = from.machine.get_current_snapshot().await.unwrap().unwrap();
    let bytes = whole.snapshot.metadata().await.unwrap().len();
    for bytes_max in 0..bytes {
        assert!(
            send(&mut from, &mut to, bytes_max).await.is_err(),
            "{bytes_max}"
        );
    }
    assert_eq!(to.state().await, (Some(3), registers_at(Some(3))));
    send(&mut from, &mut to, u64::MAX).await.unwrap();
    assert_eq!(to.state().await, (Some(10), registers_at(Some(10))));
}

/// What a kill in the midst of an install leaves: a keyspace that no note names, and files.
#[tokio::test]
async fn an_open_removes_what_an_install_has_left() {
    let mut node = Node::new();
    node.apply(1..=3).await;
    node.db.keyspace("raft.state.1").unwrap();
    let snapshots = node.snapshots.path();
    for name in ["snapshot-left", "of-somebody-else"] {
        std::fs::File::create(snapshots.join(name)).unwrap();
    }
    let (log, machine) = open(&node.db, snapshots, Registers).unwrap();
    assert!(
        !node
            .db
            .keyspace_names()
            .contains(&"raft.state.1".to_owned())
    );
    assert!(!snapshots.join("snapshot-left").exists());
    assert!(snapshots.join("of-somebody-else").exists());
    (node.log, node.machine) = (log, machine);
    assert_eq!(node.state().await, (Some(3), registers_at(Some(3))));
}
