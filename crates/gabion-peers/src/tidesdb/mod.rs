//! TidesDB 9.3, a log-structured merge tree in C, through its C interface.
//!
//! The library comes from TidesDB's own source, which the script `crates/gabion-peers/tidesdb`
//! builds for the machine at hand, without compression. A build without it says so.
//!
//! **Guide**: the C reference and the defaults of `tidesdb/db.h`: filters with a false positive in
//! a hundred, an index entry for each block, a write buffer of 64 MiB, values up to 512 bytes
//! beside their keys. What is set are the run's memory and threads.
//!
//! **Durability**: `TDB_SYNC_NONE`: a commit writes to the log and does not sync it. A synced write
//! is a commit and a sync of the log that is written then; of a commit that filled the write buffer
//! the log is another one, which is gone only when its table was synced.
//!
//! **Memory**: the block cache has the run's size. TidesDB holds back writers when all of it takes
//! three quarters of the machine's memory, whatever limit the process may have.
//!
//! **Writes** are transactions, of one record each where the run has no batches. A session has one
//! for all of its writes and one for all of its gets, each of which sees what was committed before;
//! a walk has one of its own. While several threads commit, a get right after a put may miss it for
//! a moment: its tests have seen that once in some twenty runs.
//!
//! **Walks** go forwards only. `tidesdb_iter_prev` of this release now and then frees memory that
//! is not its own, which ends the process.
//!
//! **Values** are never empty in TidesDB. One of zeros alone, or of nothing, has one more here.
//!
//! **Settling** is watched from outside: the write buffer is flushed, and TidesDB is at rest when
//! for a while nothing is flushed or compacted.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use gabion_lab::Error;
use gabion_lab::result::BytesWritten;
use gabion_lab::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
};
use serde_json::{Value, json};

use crate::{
    ABILITIES, LOSES_UNSYNCED, check_existing, is_zeros, peer_error, saturated, write_buffer_bytes,
};

#[expect(unsafe_code, reason = "calls C")]
mod ffi;

const NAME: &str = "tidesdb";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "TidesDB 9.3.14, a log-structured merge tree in C",
    abilities: TargetCapabilities {
        backward: false,
        ..ABILITIES
    },
    cache: Cache::Own,
    loses: LOSES_UNSYNCED,
    open,
};

/// The directory of the column family.
const FILE: &str = "records";

/// How long TidesDB must be at rest, in looks of [`LOOK`].
const LOOKS: usize = 10;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Tides {
    db: ffi::Db,
    settings: Value,
    holds_flushes: bool,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Tides::open(asked)?))
}

impl Tides {
    fn open(asked: &StoreOptions) -> Result<Tides, Error> {
        check_existing(NAME, asked, FILE)?;
        let write_buffer_bytes = match asked.hold_flushes {
            true => asked.records.saturating_mul(2 * (asked.record_bytes + 128)),
            false => write_buffer_bytes(asked),
        };
        let settings = ffi::Settings {
            write_buffer_bytes: saturated(write_buffer_bytes),
            cache_bytes: saturated(asked.cache_bytes),
            flush_threads: 1,
            compaction_threads: saturated(asked.background_threads.max(2) - 1),
        };
        let db = ffi::Db::open(&asked.dir, &settings).map_err(fail)?;
        let settings = json!({
            "guide": "TidesDB's C reference and tidesdb/db.h",
            "compiled": "from source, for the machine at hand",
            "compression": "none",
            "write_buffer_size": settings.write_buffer_bytes,
            "block_cache_size": settings.cache_bytes,
            "num_flush_threads": settings.flush_threads,
            "num_compaction_threads": settings.compaction_threads,
            "bloom_fpr": "0.01 (default)",
            "level_size_ratio": "10 (default)",
            "max_memory_usage": "three quarters of the machine's (default)",
            "put": "a transaction, log written, not synced (TDB_SYNC_NONE)",
            "put_synced": "a transaction, then tidesdb_sync_wal",
            "write": "a transaction",
        });
        Ok(Tides {
            db,
            settings,
            holds_flushes: asked.hold_flushes,
        })
    }

    /// All records, by TidesDB's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Tides::open(asked).unwrap();
        let mut walk = store.db.entries(b"").unwrap();
        let mut map = crate::tests::Map::new();
        while let Some((key, value)) = walk.entry().unwrap() {
            let padding = usize::from(is_zeros(value));
            map.insert(key.to_vec(), value[padding..].to_vec());
            walk.advance().unwrap();
        }
        map
    }

    /// Waits until nothing has been flushed or compacted for a while.
    fn rest(&self) {
        let mut looks = 0;
        while looks < LOOKS {
            sleep(LOOK);
            let is_at_rest = !self.db.is_flushing() && !self.db.is_compacting();
            looks = if is_at_rest { looks + 1 } else { 0 };
        }
    }
}

impl Store for Tides {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(TidesSession {
            db: &self.db,
            reads: self.db.begin().map_err(fail)?,
            writes: self.db.begin().map_err(fail)?,
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        if !self.holds_flushes {
            // A flush that is asked for while another one goes on may be left undone.
            self.rest();
            self.db.flush().map_err(fail)?;
            self.rest();
        }
        self.db.sync_log().map_err(fail)
    }

    fn compact(&self) -> Result<(), Error> {
        self.settle()?;
        self.db.compact().map_err(fail)?;
        self.settle()
    }

    fn counters(&self) -> Result<Counters, Error> {
        let written = self.db.written().map_err(fail)?;
        Ok(Counters {
            written: Some(BytesWritten {
                log: written.log,
                flush: written.flush,
                compaction: written.compaction,
                total: written.log + written.flush + written.compaction,
                ..BytesWritten::default()
            }),
            stall_ns: None,
            slowdown_ns: None,
        })
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.db.close().map_err(fail)
    }
}

struct TidesSession<'a> {
    db: &'a ffi::Db,
    reads: ffi::Transaction<'a>,
    writes: ffi::Transaction<'a>,
}

/// Puts a record in a transaction.
fn put(writes: &mut ffi::Transaction<'_>, key: &[u8], value: &[u8]) -> Result<(), String> {
    match is_zeros(value) {
        true => writes.put(key, &vec![0; value.len() + 1]),
        false => writes.put(key, value),
    }
}

impl Session for TidesSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let put = put(&mut self.writes, key, value);
        self.writes.end(put).map_err(fail)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)?;
        self.db.sync_log().map_err(fail)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut records = batch.iter();
        let written = records.try_for_each(|(key, value)| match value {
            Some(value) => put(&mut self.writes, key, value),
            None => self.writes.delete(key),
        });
        self.writes.end(written).map_err(fail)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write(batch)?;
        self.db.sync_log().map_err(fail)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        let deleted = self.writes.delete(key);
        self.writes.end(deleted).map_err(fail)
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = self.reads.get(key).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(&**value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let mut walk = self.db.entries(from).map_err(fail)?;
        let mut is_first = true;
        Ok(Box::new(move |entries| {
            let mut count = 0;
            while count < entries {
                // Moves before an entry is read, so that none is reached that nobody asked for.
                if !std::mem::take(&mut is_first) && walk.entry().map_err(fail)?.is_some() {
                    walk.advance().map_err(fail)?;
                }
                let Some(entry) = walk.entry().map_err(fail)? else {
                    break;
                };
                black_box(entry);
                count += 1;
            }
            Ok(count)
        }))
    }

    fn steps_back(&mut self, _from: &[u8]) -> Result<Steps<'_>, Error> {
        Err(fail("it cannot scan in reverse order"))
    }
}
