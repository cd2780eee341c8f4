//! Targets: the stores that the lab measures, behind one narrow interface.
//!
//! A [`Target`] is data: a name, what it can do, and how it is opened. An open target is a
//! [`Store`]; each thread of a workload works through a [`Session`] of its own. Calls go through a
//! vtable, about two nanoseconds each, the same for every target; the target `empty` shows what the
//! lab itself costs.

use std::path::PathBuf;

use serde::Serialize;

use crate::Error;
use crate::result::BytesWritten;

/// One thing that can be measured.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// One line of help: what it is, with its version.
    pub about: &'static str,
    /// What can be asked of it.
    pub abilities: TargetCapabilities,
    /// Where its data are cached.
    pub cache: Cache,
    /// What a plain put that has returned may lose, and by what: a part of a sentence.
    pub loses: &'static str,
    /// Creates a store in an empty directory, or opens the one that is there.
    pub open: fn(&StoreOptions) -> Result<Box<dyn Store>, Error>,
}

/// What can be asked of a target. A workload that needs more is refused before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TargetCapabilities {
    /// Scans and steps in key order.
    pub ordered: bool,
    /// Steps against key order.
    pub backward: bool,
    /// Writes that are on storage when they return.
    pub synced_writes: bool,
    /// What it holds is still there when it is opened again.
    pub persistent: bool,
    /// It writes its records to files, whether or not they are of use later.
    pub files: bool,
    /// Reads and writes that take effect together, or not at all.
    pub transactions: bool,
    /// Its records are counters, to which amounts can be added without reading them first.
    pub merges: bool,
}

/// Where a target has the data that it has read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// All of them are in the memory of the process.
    Memory,
    /// In a cache of its own, as large as the run says, and in the system's cache of files.
    Own,
    /// In the system's cache of files alone, whatever the run says.
    Page,
}

/// How a store is opened. The same for every target of a run, so that none is favoured.
#[derive(Clone, Debug, Serialize)]
pub struct StoreOptions {
    /// Directory of the store's files; created by the caller.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Whether the directory already holds a store of this target.
    pub existing: bool,
    /// Memory for cached data, in bytes. For stores that live on the page cache alone, the run's
    /// report says that they are not bound by it.
    pub cache_bytes: u64,
    /// Memory for writes that are not in tables yet, in bytes; `None` leaves the target's default.
    pub write_buffer_bytes: Option<u64>,
    /// Keeps all records in memory and in the log, as far as the store can: neither filling it nor
    /// [`Store::settle`] writes them to tables.
    pub hold_flushes: bool,
    /// Threads that a store may use in the background.
    pub background_threads: usize,
    /// Sessions that are open at a time, at most.
    pub sessions: usize,
    /// Records that the run is about: some stores want to know how large they will grow.
    pub records: u64,
    /// Size of a key and a value together, in bytes.
    pub record_bytes: u64,
}

/// An open target.
pub trait Store: Send + Sync {
    /// A way to work on the store for one thread.
    fn session(&self) -> Result<Box<dyn Session + '_>, Error>;

    /// Makes everything durable and waits until the store has no background work left.
    ///
    /// After it, nothing may be lost even if the process is killed.
    fn settle(&self) -> Result<(), Error>;

    /// Merges all records into as few places as the store can, so that what it looks like no longer
    /// depends on when its background threads came to run. A store that has nothing to merge does
    /// what [`Store::settle`] does.
    fn compact(&self) -> Result<(), Error> {
        self.settle()
    }

    /// What the store says of itself, counted since it was opened.
    fn counters(&self) -> Result<Counters, Error>;

    /// The first key of each part into which the store divides its keys, in their order; `None` if
    /// it does not divide them by key or does not tell. Keys are printable ASCII.
    fn borders(&self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        Ok(None)
    }

    /// What it was set to, in its own words, for the report.
    fn settings(&self) -> serde_json::Value;

    /// Closes the store; everything written is durable afterwards.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

/// What a store says of itself. A store that does not count something leaves it `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes written by purpose.
    pub written: Option<BytesWritten>,
    /// Time for which writers were stopped, in nanoseconds.
    pub stall_ns: Option<u64>,
    /// Time by which writers were slowed down, in nanoseconds.
    pub slowdown_ns: Option<u64>,
}

/// One thread's way to a store.
///
/// Reads hand the value to [`std::hint::black_box`] in the form in which the store's own interface
/// gives it (a pinned slice where there is one), so that no store pays for a copy that its users
/// would not make, and none may skip the read.
pub trait Session {
    /// Puts one record.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Puts one record and returns when it is on storage.
    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Puts or, where the value is `None`, deletes records in one write; atomically where the
    /// store can.
    fn write(&mut self, batch: &Batch) -> Result<(), Error>;

    /// The same, and returns when all of them are on storage.
    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Deletes one key, present or not.
    fn delete(&mut self, key: &[u8]) -> Result<(), Error>;

    /// Adds an amount to the counter at a key, which is 0 if it is absent. Targets without
    /// [`TargetCapabilities::merges`] return an error.
    fn merge(&mut self, key: &[u8], amount: i64) -> Result<(), Error> {
        let _ = (key, amount);
        Err(Error::Request("its records are no counters".to_owned()))
    }

    /// Reads the keys of a batch and does its writes, in one transaction. It takes effect if nobody
    /// else has written one of these keys meanwhile, and is begun again until it does. Targets
    /// without [`TargetCapabilities::transactions`] return an error.
    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let _ = batch;
        Err(Error::Request("it has no transactions".to_owned()))
    }

    /// Reads one key; whether it was there.
    fn get(&mut self, key: &[u8]) -> Result<bool, Error>;

    /// Reads up to `entries` entries from the first key not below `from`; how many there were.
    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error>;

    /// Steps through the store from the first key not below `from`, `entries` at a call;
    /// calls of the returned function give how many there were, fewer only at the end.
    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error>;

    /// Steps backwards from the last key not above `from`, as [`Session::steps`] does forwards.
    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error>;
}

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transacted {
    /// Keys that it read and that were there.
    pub found: u64,
    /// How often it was begun again.
    pub conflicts: u64,
}

/// Steps on by up to so many entries; returns how many there were.
pub type Steps<'a> = Box<dyn FnMut(usize) -> Result<usize, Error> + 'a>;

/// Records of one write. Keys and values lie in one buffer, so that filling it again allocates
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// End of the key, and end of the value if it is a put.
    ends: Vec<(usize, Option<usize>)>,
}

impl Batch {
    /// Forgets all records, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, Some(self.bytes.len())));
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push((self.bytes.len(), None));
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The records in the order in which they were added: key, and value if it is a put.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let key = &self.bytes[start..key_end];
            start = value_end.unwrap_or(key_end);
            (key, value_end.map(|end| &self.bytes[key_end..end]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_its_records_back_in_order() {
        let mut batch = Batch::default();
        batch.put(b"old", b"old");
        batch.clear();
        assert!(batch.is_empty());
        batch.put(b"a", b"1");
        batch.delete(b"bb");
        batch.put(b"", b"");
        batch.put(b"c", b"333");
        let records: Vec<_> = batch.iter().collect();
        assert_eq!(
            records,
            [
                (&b"a"[..], Some(&b"1"[..])),
                (b"bb", None),
                (b"", Some(b"")),
                (b"c", Some(b"333")),
            ]
        );
        assert_eq!((batch.len(), batch.bytes()), (4, 8));
    }
}
