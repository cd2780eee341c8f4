//! A [Gabion](gabion) store behind the trait of Parity's [kvdb].
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use gabion_kvdb::Database;
//! use kvdb::{DBTransaction, KeyValueDB};
//!
//! let database = Database::new(gabion::Db::open(dir.path())?, 2)?;
//! let mut transaction = DBTransaction::new();
//! transaction.put(0, b"stone", b"granite");
//! transaction.delete_prefix(1, b"sand");
//! database.write(transaction)?;
//! assert_eq!(database.get(0, b"stone")?, Some(b"granite".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A column is a keyspace: column 0 is `col0`. A transaction is one batch, across columns: all of
//! it or nothing, for readers and after a crash, at the durability of the store. Operations take
//! effect in their order. A deleted prefix costs one write, whatever the number of keys. Iterators
//! see the column as it was when they were made.
//!
//! [kvdb]: kvdb

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gabion::{Db, Iter, Keyspace, WriteBatch};
use kvdb::{
    DBKey, DBKeyValue, DBOp, DBTransaction, DBValue, IoStats, IoStatsKind, KeyValueDB, end_prefix,
};
use parking_lot::Mutex;

/// A store with a number of columns.
#[derive(Debug)]
pub struct Database {
    db: Db,
    columns: Vec<Keyspace>,
    counters: Counters,
    opened: Instant,
    /// What was counted when somebody last asked, and when that was.
    previous: Mutex<(Counts, Instant)>,
}

impl Database {
    /// The store with the columns 0 to `columns`, exclusive, which are made if they are missing.
    /// More columns that it has stay as they are.
    ///
    /// The engine must [order](gabion::Capabilities::ordered) keys.
    ///
    /// # Errors
    /// Those of [`Db::keyspace`].
    pub fn new(db: Db, columns: u32) -> io::Result<Database> {
        let column = |number| db.keyspace(&format!("col{number}"));
        let columns: gabion::Result<Vec<Keyspace>> = (0..columns).map(column).collect();
        let opened = Instant::now();
        Ok(Database {
            columns: columns.map_err(io::Error::other)?,
            db,
            counters: Counters::default(),
            opened,
            previous: Mutex::new((Counts::default(), opened)),
        })
    }

    /// The store.
    pub fn db(&self) -> &Db {
        &self.db
    }

    fn column(&self, number: u32) -> io::Result<&Keyspace> {
        let column = self.columns.get(number as usize);
        column.ok_or_else(|| {
            let count = self.columns.len();
            io::Error::other(format!("there is no column {number}: there are {count}"))
        })
    }

    fn scan(
        &self,
        column: u32,
        scan: impl FnOnce(&Keyspace) -> Iter,
    ) -> Box<dyn Iterator<Item = io::Result<DBKeyValue>>> {
        match self.column(column) {
            Ok(column) => Box::new(scan(column).map(|pair| {
                let (key, value) = pair.map_err(io::Error::other)?;
                Ok((DBKey::from_slice(&key), value.to_vec()))
            })),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    /// Adds an operation to a batch, and returns the bytes of its key and value.
    fn add(&self, batch: &mut WriteBatch, operation: &DBOp) -> io::Result<usize> {
        let column = self.column(operation.col())?;
        let key = operation.key();
        let (added, value_bytes) = match operation {
            DBOp::Insert { value, .. } => (batch.put(column, key, value), value.len()),
            DBOp::Delete { .. } => (batch.delete(column, key), 0),
            DBOp::DeletePrefix { .. } => {
                let end = end_prefix(key).map_or(Bound::Unbounded, Bound::Excluded);
                let range = (Bound::Included(key.to_vec()), end);
                (batch.delete_range(column, range), 0)
            }
        };
        added.map_err(io::Error::other)?;
        Ok(key.len() + value_bytes)
    }
}

impl KeyValueDB for Database {
    fn get(&self, col: u32, key: &[u8]) -> io::Result<Option<DBValue>> {
        let value = self.column(col)?.get(key).map_err(io::Error::other)?;
        let bytes = key.len() + value.as_ref().map_or(0, |value| value.len());
        add_to(&self.counters.reads, 1);
        add_to(&self.counters.bytes_read, bytes);
        Ok(value.map(|value| value.to_vec()))
    }

    fn get_by_prefix(&self, col: u32, prefix: &[u8]) -> io::Result<Option<DBValue>> {
        let first = self.iter_with_prefix(col, prefix).next().transpose()?;
        Ok(first.map(|(_, value)| value))
    }

    fn write(&self, transaction: DBTransaction) -> io::Result<()> {
        let (mut batch, mut bytes) = (WriteBatch::new(), 0);
        for operation in &transaction.ops {
            bytes += self.add(&mut batch, operation)?;
        }
        self.db.write(&batch).map_err(io::Error::other)?;
        add_to(&self.counters.transactions, 1);
        add_to(&self.counters.writes, transaction.ops.len());
        add_to(&self.counters.bytes_written, bytes);
        Ok(())
    }

    fn iter<'a>(&'a self, col: u32) -> Box<dyn Iterator<Item = io::Result<DBKeyValue>> + 'a> {
        self.scan(col, Keyspace::iter)
    }

    fn iter_with_prefix<'a>(
        &'a self,
        col: u32,
        prefix: &'a [u8],
    ) -> Box<dyn Iterator<Item = io::Result<DBKeyValue>> + 'a> {
        self.scan(col, |column| column.prefix(prefix))
    }

    /// What was asked of the database: reads are gets, with the bytes of keys and found values;
    /// writes are operations of transactions. What comes from a cache is not told apart.
    fn io_stats(&self, kind: IoStatsKind) -> IoStats {
        let counts = self.counters.read();
        match kind {
            IoStatsKind::Overall => counts.since(&Counts::default(), self.opened),
            IoStatsKind::SincePrevious => {
                let mut previous = self.previous.lock();
                let (before, start) =
                    std::mem::replace(&mut *previous, (counts.clone(), Instant::now()));
                counts.since(&before, start)
            }
        }
    }

    fn has_key(&self, col: u32, key: &[u8]) -> io::Result<bool> {
        self.column(col)?.contains(key).map_err(io::Error::other)
    }
}

#[derive(Debug, Default)]
struct Counters {
    transactions: AtomicU64,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
}

/// What the counters showed at a moment.
#[derive(Clone, Debug, Default)]
struct Counts {
    transactions: u64,
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
}

fn add_to(counter: &AtomicU64, count: usize) {
    // ORDER: Relaxed; it is only a figure.
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

impl Counters {
    fn read(&self) -> Counts {
        // ORDER: Relaxed; as in `add_to`.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            transactions: read(&self.transactions),
            reads: read(&self.reads),
            bytes_read: read(&self.bytes_read),
            writes: read(&self.writes),
            bytes_written: read(&self.bytes_written),
        }
    }
}

impl Counts {
    fn since(&self, before: &Counts, started: Instant) -> IoStats {
        IoStats {
            transactions: self.transactions.saturating_sub(before.transactions),
            reads: self.reads.saturating_sub(before.reads),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            writes: self.writes.saturating_sub(before.writes),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            started,
            span: started.elapsed(),
            ..IoStats::empty()
        }
    }
}
