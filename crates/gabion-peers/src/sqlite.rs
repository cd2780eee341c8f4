//! SQLite 3, B trees with a write-ahead log, in C, compiled from source through rusqlite.
//!
//! **Guide**: SQLite's pages on write-ahead logging, on `WITHOUT ROWID` and on pragmas. From them:
//! the log, a table whose B tree holds the records themselves, prepared statements, connections of
//! one thread each, no counting of memory (a compile-time option, in `.cargo/config.toml`).
//! The log is carried over into the tree when it has as many bytes as other stores keep in their
//! write buffer, in place of the default of 4 MB.
//!
//! **Durability**: `synchronous = NORMAL`: the log is written at each commit and synced when it is
//! carried over, so that the death of the process loses nothing. For synced writes `FULL`, which
//! syncs it at each commit.
//!
//! **Memory**: caches belong to connections, so each session has its part of the run's.
//!
//! **Writers** take turns by a lock of the adapter: SQLite allows one at a time, and lets the
//! others sleep and try again.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gabion_lab::Error;
use gabion_lab::target::{Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target};
use rusqlite::{CachedStatement, Connection, OpenFlags, OptionalExtension, Row, Rows};
use self_cell::{MutBorrow, self_cell};
use serde_json::{Value, json};

use crate::{ABILITIES, check_existing, peer_error, saturated, write_buffer_bytes};

const NAME: &str = "sqlite";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "SQLite 3.54.1 through rusqlite 0.41.1, B trees with a write-ahead log, in C",
    abilities: ABILITIES,
    cache: Cache::Own,
    loses: "by a power loss what was put since the last checkpoint",
    open,
};

const FILE: &str = "records.sqlite";

const PAGE_BYTES: u64 = 4096;

/// How long a connection waits for another one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(600);

const CREATE: &str = "CREATE TABLE IF NOT EXISTS records \
    (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID";
const PUT: &str = "REPLACE INTO records VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM records WHERE key = ?1";
const GET: &str = "SELECT value FROM records WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key";
const SCAN_BACK: &str = "SELECT key, value FROM records WHERE key <= ?1 ORDER BY key DESC";

pub(crate) struct Sqlite {
    /// Carries the log over, and keeps the file open.
    main: Mutex<Connection>,
    file: PathBuf,
    cache_bytes_per_session: u64,
    checkpoint_pages: u64,
    /// Held by the session that writes.
    writer: Mutex<()>,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Sqlite::open(asked)?))
}

/// Opens a connection.
fn connect(file: &Path, cache_bytes: u64, checkpoint_pages: u64) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(fail)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
    let cache_kib: i32 = saturated(cache_bytes / 1024);
    let pragmas = format!(
        "PRAGMA page_size = {PAGE_BYTES};
         PRAGMA journal_mode = WAL;
         PRAGMA wal_autocheckpoint = {checkpoint_pages};
         PRAGMA cache_size = -{cache_kib};
         PRAGMA synchronous = NORMAL;"
    );
    connection.execute_batch(&pragmas).map_err(fail)?;
    Ok(connection)
}

impl Sqlite {
    fn open(asked: &StoreOptions) -> Result<Sqlite, Error> {
        check_existing(NAME, asked, FILE)?;
        let file = asked.dir.join(FILE);
        let cache_bytes_per_session = asked.cache_bytes / asked.sessions.max(1) as u64;
        let checkpoint_pages = (write_buffer_bytes(asked) / PAGE_BYTES).max(1);
        let main = connect(&file, cache_bytes_per_session, checkpoint_pages)?;
        main.execute(CREATE, []).map_err(fail)?;
        let settings = json!({
            "guide": "sqlite.org: Write-Ahead Logging, WITHOUT ROWID, PRAGMA Statements",
            "version": rusqlite::version(),
            "compression": "none",
            "table": CREATE,
            "page_size": PAGE_BYTES,
            "journal_mode": "WAL",
            "wal_autocheckpoint": checkpoint_pages,
            "cache_bytes_per_session": cache_bytes_per_session,
            "mmap_size": 0,
            "threads": "none in the background",
            "put": "synchronous = NORMAL: log written, synced when carried over",
            "put_synced": "synchronous = FULL: log synced",
            "write": "a transaction",
            "read": "a transaction per get and per scan",
        });
        Ok(Sqlite {
            main: Mutex::new(main),
            file,
            cache_bytes_per_session,
            checkpoint_pages,
            writer: Mutex::new(()),
            settings,
        })
    }

    /// All records, as SQL gives them.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Sqlite::open(asked).unwrap();
        let main = store.main.lock().unwrap();
        let mut statement = main.prepare("SELECT key, value FROM records").unwrap();
        let records = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        records.unwrap().map(Result::unwrap).collect()
    }
}

impl Store for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(SqliteSession {
            connection: connect(
                &self.file,
                self.cache_bytes_per_session,
                self.checkpoint_pages,
            )?,
            are_commits_synced: false,
            writer: &self.writer,
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        let lock = self.main.lock();
        let main = lock.unwrap_or_else(PoisonError::into_inner);
        let is_busy = |row: &Row| row.get::<_, bool>(0);
        let is_busy = main.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_busy);
        if is_busy.map_err(fail)? {
            return Err(fail("the log cannot be carried over while somebody reads"));
        }
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.settle()?;
        let main = self.main.into_inner();
        let main = main.unwrap_or_else(PoisonError::into_inner);
        main.close().map_err(|(_, error)| fail(error))
    }
}

struct SqliteSession<'a> {
    connection: Connection,
    are_commits_synced: bool,
    writer: &'a Mutex<()>,
}

impl SqliteSession<'_> {
    /// Does `work` while no other session writes, with or without a sync at its commit.
    fn write_with(
        &mut self,
        is_synced: bool,
        work: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.are_commits_synced != is_synced {
            let level = if is_synced { "FULL" } else { "NORMAL" };
            self.connection
                .pragma_update(None, "synchronous", level)
                .map_err(fail)?;
            self.are_commits_synced = is_synced;
        }
        work(&self.connection).map_err(fail)
    }
}

/// Runs a statement that gives no rows.
fn run(connection: &Connection, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Writes a batch in a transaction.
fn write_all(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    let txn = connection.unchecked_transaction()?;
    let mut put = txn.prepare_cached(PUT)?;
    let mut delete = txn.prepare_cached(DELETE)?;
    for (key, value) in batch.iter() {
        match value {
            Some(value) => put.execute((key, value))?,
            None => delete.execute((key,))?,
        };
    }
    drop((put, delete));
    txn.commit()
}

impl Session for SqliteSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write_with(false, |connection| run(connection, PUT, (key, value)))
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write_with(true, |connection| run(connection, PUT, (key, value)))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_with(false, |connection| write_all(connection, batch))
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_with(true, |connection| write_all(connection, batch))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.write_with(false, |connection| run(connection, DELETE, (key,)))
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let mut statement = self.connection.prepare_cached(GET).map_err(fail)?;
        let look = |row: &Row| row.get_ref(0).map(|value| _ = black_box(value));
        let found = statement.query_row((key,), look).optional();
        Ok(found.map_err(fail)?.is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        steps_of(&self.connection, SCAN, from)
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        steps_of(&self.connection, SCAN_BACK, from)
    }
}

/// Steps over what a query gives for `from`.
fn steps_of<'a>(
    connection: &'a Connection,
    sql: &'static str,
    from: &[u8],
) -> Result<Steps<'a>, Error> {
    let statement = connection.prepare_cached(sql).map_err(fail)?;
    let mut query = Query::try_new(MutBorrow::new(statement), |statement| {
        statement.borrow_mut().query((from,))
    })
    .map_err(fail)?;
    Ok(Box::new(move |entries| {
        query
            .with_dependent_mut(|_, rows| step(rows, entries))
            .map_err(fail)
    }))
}

/// Reads up to so many rows.
fn step(rows: &mut Rows, entries: usize) -> rusqlite::Result<usize> {
    let mut count = 0;
    while count < entries
        && let Some(row) = rows.next()?
    {
        black_box((row.get_ref(0)?, row.get_ref(1)?));
        count += 1;
    }
    Ok(count)
}

type Statement<'a> = MutBorrow<CachedStatement<'a>>;

self_cell! {
    /// A statement and the rows that it gives.
    struct Query<'a> {
        owner: Statement<'a>,

        #[covariant]
        dependent: Rows,
    }
}
