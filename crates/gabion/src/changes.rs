//! The changes of a store, as those meet them who follow it.
//!
//! The engine's `feed` finds what was committed; here it becomes what users handle. Names of
//! keyspaces are looked up when their changes are met, and remembered: a number is never that of
//! another keyspace.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::{ChangeFeed, EngineHandle, wait_for};
use crate::expiry::{expires, time_of, value_of};
use crate::log::{KeyspaceEvent, LogEntry, LogOp, MalformedPayload};
use crate::names::log_name;
use crate::operands::Operands;
use crate::position::Position;
use crate::store_handle::StoreHandle;
use crate::types::Kind;
use crate::{Db, Result, Slice, Snapshot};

/// How changes are read.
///
/// ```
/// use gabion::ChangesOptions;
///
/// let options = ChangesOptions::default().durable_only(true);
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct ChangesOptions {
    /// Hand out only what survives the loss of power. Else what a power loss undoes may have been
    /// handed out before. Default: false.
    pub durable_only: bool,
}

impl ChangesOptions {
    /// Sets [`ChangesOptions::durable_only`].
    #[must_use]
    pub fn durable_only(mut self, durable_only: bool) -> ChangesOptions {
        self.durable_only = durable_only;
        self
    }
}

/// What was committed together: a single write, a batch or a transaction; or what became of a
/// keyspace.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The position behind it, from which the next ones are read.
    pub position: Position,
    /// What it did, in its order.
    pub operations: Vec<Operation>,
}

/// One operation of a change.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number of the keyspace, which no other one of the store has had or will have.
    pub keyspace: u32,
    /// Its name; `None` if it was dropped before the reader came to know it.
    pub name: Option<Arc<str>>,
    /// What was done to it.
    pub action: Action,
}

/// What an operation does.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The key has a value. So it is with an update, and with a merge whose result was known.
    Put {
        /// The key.
        key: Slice,
        /// The value.
        value: Slice,
        /// When it expires, if it does.
        expires: Option<SystemTime>,
    },
    /// The key has no value.
    Delete {
        /// The key.
        key: Slice,
    },
    /// The keys of a range have no values.
    DeleteRange {
        /// The first key of the range.
        from: Slice,
        /// The first key above it; `None` for the end of all keys.
        to: Option<Slice>,
    },
    /// Operands were merged into the key, whose value the store did not look up. The value is what
    /// the keyspace's operator makes of the base and all of them: a later merge of a key repeats
    /// what it covers of earlier ones.
    Merge {
        /// The key.
        key: Slice,
        /// What they are merged into.
        base: MergeBase,
        /// The operands, oldest first.
        operands: Vec<Slice>,
    },
    /// The keyspace was made.
    KeyspaceMade,
    /// The keyspace was dropped with all that it held.
    KeyspaceDropped,
    /// Sorted pairs were [ingested](crate::Keyspace::ingest), which the log has not: read them from
    /// the keyspace.
    Ingested {
        /// How many.
        pairs: u64,
        /// The smallest key.
        first: Slice,
        /// The largest key.
        last: Slice,
    },
}

/// What operands are merged into.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeBase {
    /// What the key had before the write of this [number](Position::number).
    Before(u64),
    /// No value.
    Nothing,
    /// A value, and when it expires.
    Value(Slice, Option<SystemTime>),
}

/// Reads the changes of a store from a position on, in the order in which they took effect, each
/// once. Keeps the store open.
///
/// As an iterator it ends where nothing is left for now, and goes on when there is more. It reads
/// the files of the log, and writers neither wait for it nor do anything for it.
pub struct Changes {
    store: Arc<StoreHandle>,
    feed: ChangeFeed,
    /// The names of keyspaces by their numbers.
    names: HashMap<u32, Arc<str>>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl Changes {
    pub(crate) fn new(
        store: &Arc<StoreHandle>,
        since: Position,
        options: &ChangesOptions,
    ) -> Result<Changes> {
        Ok(Changes {
            feed: store.engine.feed(since, options.durable_only)?,
            store: Arc::clone(store),
            names: HashMap::new(),
        })
    }

    /// The position behind the last change that was read.
    pub fn position(&self) -> Position {
        self.feed.position()
    }

    /// The next change, which is waited for up to `time`; `None` if there is none by then. Who
    /// waits looks for it at most 5 ms after it was made.
    ///
    /// # Errors
    /// As [`Db::changes`].
    pub fn next_timeout(&mut self, time: Duration) -> Result<Option<Change>> {
        wait_for(time, || self.try_next())
    }

    fn try_next(&mut self) -> Result<Option<Change>> {
        let Changes { store, feed, names } = self;
        store.engine.feed_next(feed, |fed| {
            let read = operations(&store.engine, names, fed.logged);
            let operations = read.map_err(|malformed| {
                let file = store.path.join(log_name(fed.at.segment()));
                malformed.in_file(file, fed.at.offset())
            })?;
            Ok(Change {
                position: fed.position,
                operations,
            })
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    /// The next change that is there; an error is told again by the next call, unless its cause is
    /// gone.
    fn next(&mut self) -> Option<Result<Change>> {
        self.try_next().transpose()
    }
}

/// What a record says.
fn operations(
    engine: &EngineHandle,
    names: &mut HashMap<u32, Arc<str>>,
    logged: LogEntry<'_>,
) -> Result<Vec<Operation>, MalformedPayload> {
    let name_of = |names: &mut HashMap<u32, Arc<str>>, id: u32| {
        if let Some(name) = names.get(&id) {
            return Some(Arc::clone(name));
        }
        let name = engine.keyspace_name(id)?;
        names.insert(id, Arc::clone(&name));
        Some(name)
    };
    match logged {
        LogEntry::Again => Ok(Vec::new()),
        LogEntry::Batch(_, _, operations) => operations
            .map(|operation| {
                let operation = operation?;
                Ok(Operation {
                    keyspace: operation.keyspace,
                    name: name_of(names, operation.keyspace),
                    action: Action::of(&operation)?,
                })
            })
            .collect(),
        LogEntry::Event(_, keyspace, event) => {
            if let KeyspaceEvent::Made { name } | KeyspaceEvent::Dropped { name } = event {
                names.insert(keyspace, name.into());
            }
            let action = match event {
                KeyspaceEvent::Made { .. } => Action::KeyspaceMade,
                KeyspaceEvent::Dropped { .. } => Action::KeyspaceDropped,
                KeyspaceEvent::Ingested { pairs, first, last } => Action::Ingested {
                    pairs,
                    first: Slice::new(first),
                    last: Slice::new(last),
                },
                KeyspaceEvent::Void | KeyspaceEvent::Options { .. } => return Ok(Vec::new()),
            };
            Ok(vec![Operation {
                keyspace,
                name: name_of(names, keyspace),
                action,
            }])
        }
    }
}

impl Action {
    /// What an operation of the log does.
    fn of(operation: &LogOp<'_>) -> Result<Action, MalformedPayload> {
        let LogOp {
            seq,
            kind,
            key,
            value: stored,
            ..
        } = *operation;
        let key = Slice::new(key);
        Ok(match kind {
            Kind::Put | Kind::PutExpiring => Action::Put {
                key,
                value: Slice::new(value_of(kind, stored)),
                expires: expires(kind, stored).map(time_of),
            },
            Kind::Delete => Action::Delete { key },
            Kind::DeleteRange => Action::DeleteRange {
                from: key,
                to: (!stored.is_empty()).then(|| Slice::new(stored)),
            },
            Kind::Merge => {
                let operands = Operands::decode(stored)?;
                Action::Merge {
                    key,
                    base: MergeBase::of(&operands, seq),
                    operands: operands.iter().map(Slice::new).collect(),
                }
            }
            Kind::Operand => {
                let what = "a record has an operand as no log has it";
                return Err(MalformedPayload { at: 0, what });
            }
        })
    }
}

impl MergeBase {
    fn of(operands: &Operands, seq: u64) -> MergeBase {
        match operands.base() {
            None => MergeBase::Before(operands.below(seq).unwrap_or(seq)),
            Some((Kind::Delete, _)) => MergeBase::Nothing,
            Some((kind, stored)) => MergeBase::Value(
                Slice::new(value_of(kind, stored)),
                expires(kind, stored).map(time_of),
            ),
        }
    }
}

impl Position {
    /// This position, but not before what a snapshot has, which was taken after it: so who has read
    /// the snapshot reads on here, and finds each change once.
    #[must_use]
    pub fn after(self, snapshot: &Snapshot) -> Position {
        Position {
            number: self.number.max(snapshot.number()),
            ..self
        }
    }
}

/// Someone who follows the changes of a store under a name: the store remembers up to where, and
/// keeps the changes from there on.
///
/// Cloning is cheap. Handles of one name, also of other threads, are of the same consumer.
#[derive(Clone)]
pub struct Consumer {
    store: Arc<StoreHandle>,
    name: Arc<str>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The position up to which it has acknowledged changes: at first where the store was when the
    /// consumer was made.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer) if it was dropped;
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn position(&self) -> Result<Position> {
        self.store.engine.consumer_position(&self.name)
    }

    /// The changes from its position on.
    ///
    /// # Errors
    /// As [`Consumer::position`], and those of [`Db::changes`].
    pub fn changes(&self) -> Result<Changes> {
        self.changes_with(&ChangesOptions::default())
    }

    /// As [`Consumer::changes`], with options.
    ///
    /// # Errors
    /// Those of [`Consumer::changes`].
    pub fn changes_with(&self, options: &ChangesOptions) -> Result<Changes> {
        Changes::new(&self.store, self.position()?, options)
    }

    /// Takes note that it needs no change before a position any more. One that it has passed
    /// changes nothing.
    ///
    /// Durable when it returns, and so is everything in front of the position: a consumer never has
    /// acknowledged what a power loss undoes. It costs a sync of a small file, and one of the log
    /// where it is not durable so far; so acknowledge after many changes, not after each.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer) if it was dropped;
    /// [`Error::ChangesGone`](crate::Error::ChangesGone) for a position that the store has not come
    /// to; those of writes.
    pub fn acknowledge(&self, position: Position) -> Result<()> {
        self.store.engine.acknowledge(&self.name, position)
    }
}

/// What a consumer is now: [`Db::consumers`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// The position up to which it has acknowledged changes.
    pub position: Position,
    /// Bytes of the log behind that position.
    pub bytes: u64,
    /// Whether it was too slow, so that nothing is kept for it any more.
    pub is_cut_off: bool,
}

impl Db {
    /// The changes behind a position, in the order in which they took effect: each write, batch and
    /// transaction once and as a whole, and what became of keyspaces.
    ///
    /// The log has them as long as it is needed for other things; who must find all of them is a
    /// [consumer](Db::consumer). Reading costs writers nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{Action, Db};
    ///
    /// let db = Db::open(dir.path())?;
    /// let before = db.position()?;
    /// db.put("basket", "stones")?;
    /// let mut changes = db.changes(before)?;
    /// let change = changes.next().expect("a change")?;
    /// let operation = &change.operations[0];
    /// assert_eq!(operation.name.as_deref(), Some("default"));
    /// assert!(matches!(&operation.action, Action::Put { key, .. } if **key == *b"basket"));
    /// assert!(changes.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes). Of the items:
    /// [`Error::ChangesGone`](crate::Error::ChangesGone) if the log has not what follows the
    /// position; [`Error::ChangesUnlogged`](crate::Error::ChangesUnlogged);
    /// [`Error::Corruption`](crate::Error::Corruption); [`Error::Media`](crate::Error::Media);
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn changes(&self, since: Position) -> Result<Changes> {
        self.changes_with(since, &ChangesOptions::default())
    }

    /// As [`Db::changes`], with options.
    ///
    /// # Errors
    /// Those of [`Db::changes`].
    pub fn changes_with(&self, since: Position, options: &ChangesOptions) -> Result<Changes> {
        Changes::new(self.store(), since, options)
    }

    /// Where the store is now: behind all changes that readers see. Waits for the write that is
    /// under way.
    ///
    /// # Errors
    /// As [`Db::changes`]; those of a log that has failed.
    pub fn position(&self) -> Result<Position> {
        self.handle().position()
    }

    /// The position behind which all changes are there.
    ///
    /// # Errors
    /// As [`Db::changes`].
    pub fn oldest_position(&self) -> Result<Position> {
        self.handle().oldest_position()
    }

    /// The consumer of that name, made durably where the store is now if there is none. It lasts
    /// until it is dropped, over openings of the store. The changes from its position on are kept,
    /// up to [`Options::changes_bytes_max`](crate::Options::changes_bytes_max).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes); [`Error::Limit`](crate::Error::Limit) for a name
    /// that is empty or longer than 255 bytes; those of writes.
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        self.handle().consumer(name)?;
        Ok(Consumer {
            store: Arc::clone(self.store()),
            name: name.into(),
        })
    }

    /// All consumers, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes); [`Error::Closed`](crate::Error::Closed).
    pub fn consumers(&self) -> Result<Vec<ConsumerInfo>> {
        let states = self.handle().consumer_states()?;
        let info = |state: crate::engine::ConsumerState| ConsumerInfo {
            name: state.name,
            position: state.position,
            bytes: state.bytes,
            is_cut_off: state.is_cut_off,
        };
        Ok(states.into_iter().map(info).collect())
    }

    /// Forgets a consumer, durably, and lets go of what was kept for it alone.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer);
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes); those of writes.
    pub fn drop_consumer(&self, name: &str) -> Result<()> {
        self.handle().drop_consumer(name)
    }
}
