//! Gabion's WipDB engine as a target.

use std::hint::black_box;

use gabion::{
    AddI64, Cursor, Db, Durability, Engine, Keyspace, KeyspaceOptions, MemTableForm, Options,
    Tuning, WriteBatch,
};
use serde_json::json;

use crate::Error;
use crate::result::BytesWritten;
use crate::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};

/// The target `gabion_store`.
pub const TARGET: Target = Target {
    name: "wip",
    about: concat!("Gabion's WipDB engine, version ", env!("CARGO_PKG_VERSION")),
    abilities: TargetCapabilities {
        ordered: true,
        backward: true,
        synced_writes: true,
        persistent: true,
        files: true,
        transactions: true,
        merges: false,
    },
    cache: Cache::Page,
    loses: "by a power loss what was not synced; what is left is a prefix of the puts",
    open,
};

/// The target `wip-hash`.
pub const HASH: Target = Target {
    name: "wip-hash",
    about: "wip with MemTables that are always hash tables",
    open: |options| open_with(options, |tuning| tuning.memtable_form(MemTableForm::Hash)),
    ..TARGET
};

/// The target `wip-ordered`.
pub const ORDERED: Target = Target {
    name: "wip-ordered",
    about: "wip with MemTables that are always kept in order too",
    open: |options| {
        open_with(options, |tuning| {
            tuning.memtable_form(MemTableForm::Ordered)
        })
    },
    ..TARGET
};

/// The target `wip-unaware`.
pub const UNAWARE: Target = Target {
    name: "wip-unaware",
    about: "wip whose compactions are ordered by what was written only, not by what is read",
    open: |options| open_with(options, |tuning| tuning.read_weight(0)),
    ..TARGET
};

/// The target `wip-counters`.
pub const COUNTERS: Target = Target {
    name: "wip-counters",
    about: "wip with a keyspace of counters",
    abilities: TargetCapabilities {
        merges: true,
        ..TARGET.abilities
    },
    open: |options| {
        let (db, settings) = open_db(options, |tuning| tuning)?;
        counters(db, settings)
    },
    ..TARGET
};

/// Memory and log that no run fills.
const HELD_BYTES: u64 = 1 << 46;

struct GabionStore {
    db: Db,
    /// Where the records are.
    keyspace: Keyspace,
    /// What the store has is to stay in its log.
    holds_flushes: bool,
    settings: serde_json::Value,
}

/// What a store of Gabion is opened with, whatever its engine.
pub(super) fn options_of(engine: Engine, options: &StoreOptions) -> Options {
    let mut tuning = Tuning::default().cache_bytes(options.cache_bytes);
    tuning.memtable_budget_bytes = options.write_buffer_bytes;
    Options::default()
        .engine(engine)
        .create_if_missing(!options.existing)
        .error_if_exists(!options.existing)
        .durability(Durability::Buffered)
        .background_threads(options.background_threads)
        .tuning(tuning)
}

/// A store of Gabion that was opened elsewhere, with what it was set to.
pub fn opened(db: Db, settings: serde_json::Value) -> Box<dyn Store> {
    Box::new(GabionStore {
        keyspace: db.default_keyspace().clone(),
        db,
        holds_flushes: false,
        settings,
    })
}

/// The same, whose records are counters in a keyspace of their own.
pub(super) fn counters(db: Db, settings: serde_json::Value) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(GabionStore {
        keyspace: db.keyspace_with("counters", &KeyspaceOptions::default().merge(AddI64))?,
        db,
        holds_flushes: false,
        settings,
    }))
}

fn open(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    open_with(options, |tuning| tuning)
}

fn open_with(
    options: &StoreOptions,
    change: impl FnOnce(Tuning) -> Tuning,
) -> Result<Box<dyn Store>, Error> {
    let (db, settings) = open_db(options, change)?;
    Ok(Box::new(GabionStore {
        keyspace: db.default_keyspace().clone(),
        db,
        holds_flushes: options.hold_flushes,
        settings,
    }))
}

/// An open store, and what it was set to.
fn open_db(
    options: &StoreOptions,
    change: impl FnOnce(Tuning) -> Tuning,
) -> Result<(Db, serde_json::Value), Error> {
    let mut store = options_of(Engine::Wip, options);
    if options.hold_flushes {
        store.tuning.memtable_budget_bytes = Some(HELD_BYTES);
        store.log_bytes_max = HELD_BYTES;
    }
    store.tuning = change(store.tuning);
    let sizes = store.memory_sizes();
    let settings = json!({
        "durability": store.durability.to_string(),
        "table_reads": store.table_reads.to_string(),
        "memtable_form": store.tuning.memtable_form.to_string(),
        "cache_bytes": sizes.cache,
        "memtable_budget_bytes": sizes.memtables,
        "read_weight": store.tuning.read_weight,
        "bucket_bytes": store.tuning.bucket_bytes,
        "log_bytes_max": store.log_bytes_max,
        "filter_bits_per_key": store.tuning.filter_bits_per_key,
        "background_threads": store.background_threads,
    });
    Ok((store.open(&options.dir)?, settings))
}

impl Store for GabionStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(GabionSession {
            db: &self.db,
            keyspace: &self.keyspace,
            writes: WriteBatch::new(),
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        self.db.persist(Durability::Sync)?;
        if self.holds_flushes {
            // A store that is told to rest shortens its log.
            return Ok(());
        }
        Ok(self.db.wait_idle()?)
    }

    fn compact(&self) -> Result<(), Error> {
        Ok(self.db.compact::<&[u8]>(..)?)
    }

    fn counters(&self) -> Result<Counters, Error> {
        let stats = self.db.stats();
        Ok(Counters {
            written: Some(BytesWritten::of(&stats)),
            stall_ns: Some(stats.stall_ns),
            slowdown_ns: Some(stats.slowdown_ns),
        })
    }

    fn borders(&self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        if !self.db.engine().capabilities().ordered {
            return Ok(None);
        }
        let keyspaces = self.db.stats().keyspaces;
        let buckets = keyspaces.into_iter().flat_map(|keyspace| keyspace.buckets);
        Ok(Some(
            buckets.map(|bucket| bucket.lower.into_bytes()).collect(),
        ))
    }

    fn settings(&self) -> serde_json::Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(self.db.close()?)
    }
}

struct GabionSession<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    /// Memory for batches.
    writes: WriteBatch,
}

impl GabionSession<'_> {
    /// An error if the engine has no order to step in.
    fn require_order(&self) -> Result<(), Error> {
        let engine = self.db.engine();
        match engine.capabilities().ordered {
            true => Ok(()),
            false => Err(Error::Request(format!("{engine} has no order to step in"))),
        }
    }

    /// Puts the records of a batch into the session's.
    fn fill(&mut self, batch: &Batch) -> Result<(), Error> {
        self.writes.clear();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => self.writes.put(self.keyspace, key, value)?,
                None => self.writes.delete(self.keyspace, key)?,
            }
        }
        Ok(())
    }
}

impl Session for GabionSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Ok(self.keyspace.put(key, value)?)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Ok(self.keyspace.put_with(key, value, Durability::Sync)?)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.fill(batch)?;
        Ok(self.db.write(&self.writes)?)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.fill(batch)?;
        Ok(self.db.write_with(&self.writes, Durability::Sync)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        Ok(self.keyspace.delete(key)?)
    }

    fn merge(&mut self, key: &[u8], amount: i64) -> Result<(), Error> {
        Ok(self.keyspace.merge(key, amount.to_le_bytes())?)
    }

    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let mut done = Transacted::default();
        loop {
            done.found = 0;
            let mut transaction = self.db.begin()?;
            for (key, value) in batch.iter() {
                let read = transaction.get(self.keyspace, key)?;
                done.found += u64::from(black_box(read).is_some());
                match value {
                    Some(value) => transaction.put(self.keyspace, key, value)?,
                    None => transaction.delete(self.keyspace, key)?,
                }
            }
            match transaction.commit() {
                Err(gabion::Error::Conflict { .. }) => done.conflicts += 1,
                ended => return Ok(ended.map(|()| done)?),
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(black_box(self.keyspace.get(key)?).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        step(&mut self.keyspace.cursor(from..), entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        self.require_order()?;
        let mut cursor = self.keyspace.cursor(from..);
        Ok(Box::new(move |entries| step(&mut cursor, entries)))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        self.require_order()?;
        let mut pairs = self.keyspace.range(..=from).rev();
        Ok(Box::new(move |entries| {
            let mut count = 0;
            for pair in pairs.by_ref().take(entries) {
                black_box(pair?);
                count += 1;
            }
            Ok(count)
        }))
    }
}

/// Looks at up to `entries` pairs; how many there were.
fn step(cursor: &mut Cursor, entries: usize) -> Result<usize, Error> {
    let mut count = 0;
    while count < entries && cursor.advance()? {
        black_box((cursor.key(), cursor.value()));
        count += 1;
    }
    Ok(count)
}
