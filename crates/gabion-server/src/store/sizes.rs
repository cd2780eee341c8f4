//! Sizes of databases: keys, and keys with an expiry.
//!
//! # Idea
//! The counts are in memory: a command adds what it has changed once its writes are committed. A
//! clean close notes them down, and the next open takes the note away. After a crash there is no
//! note; then a thread counts the keys of a snapshot, while commands go on and add to what it will
//! find. Whoever asks for a count before it is known waits.
//!
//! # Invariants
//! - I1. The note is in the store only while nobody writes: it is removed, in the log before all
//!   other writes, when the store is opened.
//! - I2. `counted + changes` is the count; `counted` comes once, from the note, the snapshot, or a
//!   flush, which makes it 0 and all changes before it void.

use std::sync::Arc;

use gabion::Keyspace;
use parking_lot::{Condvar, Mutex};

use super::meta::KeyRecord;
use crate::fault::Result;

const SIZES_KEY: &str = "sizes";

/// Counts of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseSize {
    /// Keys.
    pub(crate) keys: i64,
    /// Keys that expire.
    pub(crate) expiring: i64,
}

impl DatabaseSize {
    fn add(&mut self, other: DatabaseSize) {
        self.keys += other.keys;
        self.expiring += other.expiring;
    }
}

#[derive(Debug, Default)]
struct Space {
    changes: DatabaseSize,
    counted: Option<DatabaseSize>,
    /// Counts flushes, so that a count of before is not taken for one of after.
    flushes: u64,
}

#[derive(Debug)]
struct Shared {
    spaces: Box<[Mutex<Space>]>,
    known: Condvar,
    waiting: Mutex<()>,
}

/// The counts of a store.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseSizes {
    shared: Arc<Shared>,
}

impl DatabaseSizes {
    /// Takes the note, or begins to count.
    pub(crate) fn open(
        keys: &Keyspace,
        settings: &Keyspace,
        databases: usize,
    ) -> Result<DatabaseSizes> {
        let spaces = (0..databases).map(|_| Mutex::default()).collect();
        let sizes = DatabaseSizes {
            shared: Arc::new(Shared {
                spaces,
                known: Condvar::new(),
                waiting: Mutex::new(()),
            }),
        };
        let note = settings.get(SIZES_KEY)?;
        settings.delete(SIZES_KEY)?;
        match note {
            Some(note) => {
                let mut numbers = note.chunks_exact(8).filter_map(|bytes| bytes.first_chunk());
                let mut next = || numbers.next().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                for space in 0..databases {
                    let size = DatabaseSize {
                        keys: next(),
                        expiring: next(),
                    };
                    sizes.shared.spaces[space].lock().counted = Some(size);
                }
            }
            None if keys.iter().next().is_none() => {
                for space in &sizes.shared.spaces {
                    space.lock().counted = Some(DatabaseSize::default());
                }
            }
            None => sizes.count_in_background(keys),
        }
        Ok(sizes)
    }

    fn count_in_background(&self, keys: &Keyspace) {
        // The cursor sees what is there now; changes from now on are added to what it finds.
        let mut cursor = keys.cursor::<&[u8]>(..);
        let sizes = self.clone();
        std::thread::spawn(move || {
            let databases = sizes.shared.spaces.len();
            let mut found = vec![DatabaseSize::default(); databases];
            while cursor.advance().unwrap_or(false) {
                let [high, low, ..] = *cursor.key() else {
                    continue;
                };
                let space = usize::from(u16::from_le_bytes([low, high]));
                let Some(size) = found.get_mut(space) else {
                    continue;
                };
                let record = gabion::Slice::new(cursor.value());
                let expires =
                    KeyRecord::read(record).is_ok_and(|meta| meta.head.expires_ms.is_some());
                size.keys += 1;
                size.expiring += i64::from(expires);
            }
            for (space, found) in sizes.shared.spaces.iter().zip(found) {
                let mut space = space.lock();
                if space.flushes == 0 {
                    space.counted = Some(found);
                }
            }
            let _waiting = sizes.shared.waiting.lock();
            sizes.shared.known.notify_all();
        });
    }

    /// Adds what a command has changed.
    pub(crate) fn add(&self, space: u16, change: DatabaseSize) {
        if change != DatabaseSize::default()
            && let Some(space) = self.shared.spaces.get(usize::from(space))
        {
            space.lock().changes.add(change);
        }
    }

    /// All keys of a database are gone.
    pub(crate) fn clear(&self, space: u16) {
        if let Some(space) = self.shared.spaces.get(usize::from(space)) {
            let mut space = space.lock();
            space.counted = Some(DatabaseSize::default());
            space.changes = DatabaseSize::default();
            space.flushes += 1;
        }
    }

    /// The counts of a database. Waits while they are found out.
    pub(crate) fn of(&self, space: u16) -> DatabaseSize {
        let Some(space) = self.shared.spaces.get(usize::from(space)) else {
            return DatabaseSize::default();
        };
        loop {
            let mut waiting = self.shared.waiting.lock();
            {
                let space = space.lock();
                if let Some(mut size) = space.counted {
                    size.add(space.changes);
                    return size;
                }
            }
            self.shared.known.wait(&mut waiting);
        }
    }

    /// Whether all counts are known.
    fn are_known(&self) -> bool {
        let is_known = |space: &Mutex<Space>| space.lock().counted.is_some();
        self.shared.spaces.iter().all(is_known)
    }

    /// Notes the counts down, unless they are still being found out: then the next open counts.
    pub(crate) fn save(&self, settings: &Keyspace) -> Result<()> {
        if !self.are_known() {
            return Ok(());
        }
        let mut note = Vec::new();
        for space in 0..self.shared.spaces.len() {
            let size = self.of(u16::try_from(space).unwrap_or(u16::MAX));
            note.extend_from_slice(&size.keys.to_le_bytes());
            note.extend_from_slice(&size.expiring.to_le_bytes());
        }
        settings.put(SIZES_KEY, note)?;
        Ok(())
    }
}
