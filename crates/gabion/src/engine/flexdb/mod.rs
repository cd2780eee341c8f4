//! FlexDB: all pairs sorted in one address space, changed in place.
//!
//! # Idea (paper, section 5)
//! A FlexSpace inserts and removes bytes anywhere at the cost of writing them. So pairs can be kept
//! in order without levels and without compactions: a write goes to the log and to a MemTable; when
//! the MemTables are full, their pairs are put where they belong among those of the space, and
//! nothing else is written. A sparse index in memory says where each interval of some 16 pairs
//! lies; intervals that are read often are cached, decoded.
//!
//! # Files
//! The root (`layout`) names the keyspaces and says which part of the log is needed; the log is
//! that of all engines; each keyspace has a space of its own, which is a partition: merged, synced
//! and recovered by itself.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `writepath` | a write: log, MemTable, publication |
//! | `readpath`, `scan` | a get, a range scan |
//! | `generation`, `per_keyspace` | MemTables, and what is kept for readers of earlier moments |
//! | `commit` | a frozen generation is merged into the spaces, the log's tail moves on |
//! | `partition`, `index`, `interval`, `cache` | a space of pairs, and finding them |
//! | `schedule` | threads, and writers that wait for them |
//! | `memory_ceiling`, `maintenance` | memory; garbage collection, and what an idle store frees |
//! | `recovery`, `layout`, `root_keyspaces` | open and close, the root |
//! | `repair`, `salvage` | what is whole of a damaged store becomes another store |
//! | `checkpoint`, `backup` | the store of a moment as another store, or for a backup |
//! | `drop` | a keyspace goes, with its space |
//! | `verify`, `stats` | what there is |
//!
//! # Invariants
//! - I1. A write that is acknowledged is in the log, or merged into a synced space. The root's tail
//!   moves past a segment of the log only after the spaces that hold its writes were synced; with
//!   the tail it says how far these had come, so that damage of the newest commit of a space is not
//!   taken for the torn end of a crash.
//! - I2. A generation is merged only when the log is durable up to its newest write. So what a
//!   power loss leaves is a prefix of the writes: what the spaces hold of later moments is in the
//!   log, too.
//! - I3. Generations are merged in their order, one at a time. Repeating a merge, as a whole or
//!   from any place on, changes nothing: its writes say what keys have in the end.
//! - I4. A reader at a registered number finds what was overwritten since: see `generation`.
//! - I5. Locks are taken in the order merge, writer, root, view, writer of a space, hand of the
//!   cache, index, readers of a space; each may be skipped.
//!
//! # Linearization and durability points
//! A write takes effect when its number is published, after it is in its MemTable. It survives the
//! end of the process when it is in the log's mapping, and the loss of power when a sync of the log
//! that began later has returned. A merge takes effect nowhere: what readers see stays the same.
//!
//! # Recovery
//! The spaces recover themselves, each to a state between two merges or within one. All of the log
//! that the root needs is replayed into MemTables, whatever of it the spaces hold already; these
//! say the same as the spaces or something newer, so a batch that a crash has split among spaces is
//! whole again. The index is rebuilt from the marks of the spaces, at a stride, by several threads.
//!
//! # Deviations from the paper
//! Keyspaces, batches and snapshots; several committers; a merge gives way after some intervals,
//! not after 1000 pairs, and keeps out only readers of what is not cached, while the trees change.
//!
//! | paper's term | here |
//! |---|---|
//! | committer | `commit` |
//! | anchor, sparse index entry | an interval of an `index::IndexLeaf` |
//! | flexspace_defrag of an interval | `partition::change::Plan` that rewrites |
//!
//! Source: Chen, Zhong, Wu: Efficient Data Management with a Flexible Address Space, section 5.

mod backup;
mod cache;
mod cached_bytes;
mod checkpoint;
mod commit;
mod conflicts;
mod drop;
mod expiry_sweep;
mod generation;
mod index;
mod interval;
mod layout;
mod maintenance;
mod memory_ceiling;
mod partition;
mod per_keyspace;
mod readpath;
mod recovery;
mod repair;
mod root_keyspaces;
mod salvage;
#[cfg(test)]
mod scale_tests;
mod scan;
mod schedule;
mod stats;
mod steps;
mod throttle;
mod verify;
mod writepath;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use gabion_flex::ReaderWaits;
use parking_lot::Mutex;

use super::idle_timer::IdleTimer;
use super::keyspaces::{DropSeq, DroppableKeyspace, KeyspaceId};
use super::live_options::LiveKeyspaceOptions;
use super::ssd::{FeedSource, Shell, SsdEngine};
use super::write;
use crate::expiry::ReadPoint;
use crate::log::KeyspaceEvent;
use crate::{Error, KeyspaceOptions, Result};

use cache::IntervalCache;
use expiry_sweep::ExpiryCounts;
use generation::GenerationList;
use layout::Root;
use partition::Partition;
use writepath::FlexWriteHalf;

pub(super) use layout::{ROOT_NAME, check_root, is_own_file};
pub(super) use recovery::log_place;
pub(super) use repair::repair;
pub(crate) use scan::FlexScan;
pub(super) use verify::check_disk;

/// One write, as its writer hands it in.
pub(crate) type Write<'w> = write::Write<'w, FlexKeyspace>;

/// A keyspace: a name, and a space of sorted pairs.
pub(crate) struct FlexKeyspace {
    /// The number by which the log and the root know the keyspace.
    pub(crate) id: u32,
    /// The name that users give it.
    pub(crate) name: String,
    partition: Partition,
    /// What expires in its space.
    expiring: Mutex<ExpiryCounts>,
    pub(crate) dropped: DropSeq,
    own: LiveKeyspaceOptions,
}

impl KeyspaceId for FlexKeyspace {
    fn id(&self) -> u32 {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl DroppableKeyspace for FlexKeyspace {
    fn dropped(&self) -> &DropSeq {
        &self.dropped
    }

    fn own_options(&self) -> &LiveKeyspaceOptions {
        &self.own
    }
}

/// The engine. Background threads share it with the facade.
pub(crate) struct Flex {
    shell: Shell<FlexKeyspace>,
    cache: Arc<IntervalCache>,
    /// The log's write half and the next number; whoever writes holds it.
    writer: Mutex<FlexWriteHalf>,

    view: ArcSwap<GenerationList>,
    /// Held while the view is replaced.
    view_lock: Mutex<()>,
    /// The newest generation whose merge has begun.
    merging: AtomicU64,
    /// The newest generation that is merged, durably, and out of the log.
    merged: AtomicU64,
    /// Held by whoever changes the content of spaces.
    merge_lock: Mutex<()>,
    /// The most bytes that were left to all trees when one of them got its budget.
    trees_left: AtomicU64,
    /// The root as it was last written.
    root: Mutex<Root>,
    /// The waits of readers of keyspaces that are gone.
    past_waits: Mutex<ReaderWaits>,

    idleness: Mutex<IdleTimer>,
}

impl Deref for Flex {
    type Target = Shell<FlexKeyspace>;

    fn deref(&self) -> &Shell<FlexKeyspace> {
        &self.shell
    }
}

impl Flex {
    /// As [`Flex::keyspace_with`], with no options of its own.
    #[cfg(test)]
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Arc<FlexKeyspace>> {
        self.keyspace_with(name, None)
    }

    /// The keyspace of that name, made durably if it does not exist; with these options from now
    /// on, if they are given.
    pub(crate) fn keyspace_with(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<Arc<FlexKeyspace>> {
        if let Some(keyspace) = self.keyspaces.find(name)
            && keyspace.own.is_as_wanted(name, options)?
        {
            return Ok(keyspace);
        }
        self.check_writable()?;
        let mut root = self.root.lock();
        // Whoever waited for the lock may find the store closed.
        self.health.check_writable()?;
        if let Some(keyspace) = self.keyspaces.find(name) {
            if let Some(options) = options {
                let wanted = options.in_place_of(name, &keyspace.own.get())?;
                let mut next = root.clone();
                next.keyspaces.set_options(keyspace.id, &wanted);
                let is_new = next != *root;
                if is_new {
                    self.write_root(&mut root, next)?;
                }
                keyspace.own.set(wanted);
                drop(root);
                if is_new {
                    self.tell_options(&mut self.writer.lock(), &keyspace);
                }
            }
            return Ok(keyspace);
        }
        let options = options.cloned().unwrap_or_default();
        let id = root.next_keyspace;
        // What an earlier try has left is empty, and is used or replaced.
        let disk = self.disk.part(&layout::space_prefix(id));
        let spaces = root.keyspaces.len() + 1;
        let partition = Partition::create(disk, &self.cache, &self.options, spaces)?;
        let reached = partition.space().durable_point();
        let keyspace = Arc::new(FlexKeyspace {
            id,
            name: name.to_owned(),
            partition,
            expiring: Mutex::default(),
            dropped: DropSeq::default(),
            own: LiveKeyspaceOptions::new(options.clone(), false),
        });
        let mut next = root.clone();
        next.add_keyspace(name, reached, options);
        self.write_root(&mut root, next)?;
        self.keyspaces.add(&keyspace);
        // The writer's lock comes before the root's; so somebody may have written already, or
        // dropped the keyspace.
        drop(root);
        let writer = &mut *self.writer.lock();
        if !keyspace.dropped.is_set() {
            let last = writer.next_seq - 1;
            self.tell(writer, last, id, KeyspaceEvent::Made { name });
            if !keyspace.own.get().encode().is_empty() {
                self.tell_options(writer, &keyspace);
            }
        }
        Ok(keyspace)
    }

    /// Tells those who follow the log which options a keyspace has: the newest, whoever comes
    /// first.
    fn tell_options(&self, writer: &mut FlexWriteHalf, keyspace: &FlexKeyspace) {
        let (last, options) = (writer.next_seq - 1, &keyspace.own.get().encode());
        self.tell(
            writer,
            last,
            keyspace.id,
            KeyspaceEvent::Options { options },
        );
    }

    /// Writes the root. Where there is no space or no descriptor for it, the store goes on with the
    /// old one, if that is still the file; after any other failure nobody knows which of the two is
    /// in effect, so the store turns read-only.
    fn write_root(&self, root: &mut Root, next: Root) -> Result<()> {
        match next.write(&self.disk) {
            Ok(()) => {
                *root = next;
                Ok(())
            }
            Err(error) if error.is_too_many_files() => Err(error),
            // What found no space may be the sync of the directory, which has the new one by then.
            Err(error) if error.is_no_space() && self.is_root(root) => Err(error),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Whether the file says this.
    fn is_root(&self, root: &Root) -> bool {
        Root::read(&self.disk).is_ok_and(|read| read == *root)
    }

    /// Ends a registration.
    pub(crate) fn end_snapshot(&self, point: ReadPoint) {
        self.snapshots.release(point);
        if !self.view.load().past.is_empty() {
            self.forget_past();
        }
        self.forget_dropped_if_free();
    }

    /// Replaces the view. What goes with the old one, which may be much, goes without the lock.
    fn change_view(&self, change: impl FnOnce(&mut GenerationList)) {
        let lock = self.view_lock.lock();
        let mut view = GenerationList::clone(&self.view.load());
        change(&mut view);
        let old = self.view.swap(Arc::new(view));
        drop(lock);
        drop(old);
    }

    /// For how long readers of what is not cached could be kept out.
    pub(crate) fn reader_waits(&self) -> ReaderWaits {
        let mut waits = self.past_waits.lock().clone();
        for keyspace in self.keyspaces.load().iter() {
            waits.add(&keyspace.partition.reader_waits());
        }
        waits
    }
}

impl From<gabion_flex::Error> for Error {
    fn from(error: gabion_flex::Error) -> Error {
        match error {
            gabion_flex::Error::Media(error) => error.into(),
            gabion_flex::Error::Corruption { file, offset, what } => {
                Error::Corruption { file, offset, what }
            }
            gabion_flex::Error::NotASpace { path, why } => Error::Corruption {
                file: path,
                offset: 0,
                what: format!("a space that the root file names is missing: {why}"),
            },
            gabion_flex::Error::NewerFormat {
                file,
                found,
                supported,
            } => Error::NewerFormat {
                file,
                found,
                supported,
            },
            gabion_flex::Error::Options { what } => Error::InvalidOption {
                option: "memtable_budget_bytes",
                why: what,
            },
            other => Error::ReadOnly {
                cause: other.to_string(),
            },
        }
    }
}
