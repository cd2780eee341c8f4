//! The change stream of a store, as users read it.
//!
//! The engine's `feed` finds committed changes; this module turns them into public types. It looks
//! up the name of a keyspace when it meets a change to it, and remembers the name: keyspace numbers
//! are never reused.

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

/// Options for reading changes.
///
/// ```
/// use gabion::ChangesOptions;
///
/// let options = ChangesOptions::default().durable_only(true);
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct ChangesOptions {
    /// Return only changes that survive a power loss. Otherwise a reader may get changes that a
    /// later power loss undoes. Default: false.
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

/// What was committed together: a single write, a batch or a transaction; or the creation, drop or
/// ingest of a keyspace.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The position after this change; read on from it.
    pub position: Position,
    /// Its operations, in their order.
    pub operations: Vec<Operation>,
}

/// One operation of a change.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number of the keyspace; the store never reuses it.
    pub keyspace: u32,
    /// The keyspace's name; `None` if it was dropped before the reader learned it.
    pub name: Option<Arc<str>>,
    /// The operation itself.
    pub action: ChangeAction,
}

/// What an operation does.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// A value was put. Updates appear as this, and merges whose result was known.
    Put {
        /// The key.
        key: Slice,
        /// The value.
        value: Slice,
        /// When it expires; `None` if it does not.
        expires: Option<SystemTime>,
    },
    /// The key was deleted.
    Delete {
        /// The key.
        key: Slice,
    },
    /// A range of keys was deleted.
    DeleteRange {
        /// The first key of the range.
        from: Slice,
        /// The first key after the range; `None` if the range has no upper end.
        to: Option<Slice>,
    },
    /// Operands were merged into the key, and the store did not read the old value. The new value
    /// is what the keyspace's operator makes of `base` and all `operands`. Where a merge covers
    /// earlier merges of the key, it repeats their operands.
    Merge {
        /// The key.
        key: Slice,
        /// The base that the operands are merged into.
        base: MergeBase,
        /// The operands, oldest first.
        operands: Vec<Slice>,
    },
    /// The keyspace was created.
    KeyspaceCreated,
    /// The keyspace was dropped with all that it held.
    KeyspaceDropped,
    /// Sorted pairs were [ingested](crate::Keyspace::ingest). The log does not have them: read them
    /// from the keyspace.
    Ingested {
        /// Number of pairs.
        pairs: u64,
        /// The smallest key.
        first: Slice,
        /// The largest key.
        last: Slice,
    },
}

/// The base of a merge.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeBase {
    /// The value that the key had before the write of this [number](Position::number).
    Before(u64),
    /// No value.
    Nothing,
    /// A value, and the time at which it expires.
    Value(Slice, Option<SystemTime>),
}

/// Reads the changes of a store after a position, in the order in which they took effect, each
/// once. Keeps the store open.
///
/// As an iterator it returns `None` when it has read all changes so far, and continues when there
/// are more. It reads the log's files, so it costs writers nothing.
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

    /// The position after the last change that was read.
    pub fn position(&self) -> Position {
        self.feed.position()
    }

    /// Returns the next change, waiting for it up to `time`; `None` if there is none by then. A
    /// waiting call sees a change at most 5 ms after it was committed.
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

    /// The next change, if there is one. After an error, the next call returns it again unless its
    /// cause is gone.
    fn next(&mut self) -> Option<Result<Change>> {
        self.try_next().transpose()
    }
}

/// The operations of a log record.
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
                    action: ChangeAction::of(&operation)?,
                })
            })
            .collect(),
        LogEntry::Event(_, keyspace, event) => {
            if let KeyspaceEvent::Made { name } | KeyspaceEvent::Dropped { name } = event {
                names.insert(keyspace, name.into());
            }
            let action = match event {
                KeyspaceEvent::Made { .. } => ChangeAction::KeyspaceCreated,
                KeyspaceEvent::Dropped { .. } => ChangeAction::KeyspaceDropped,
                KeyspaceEvent::Ingested { pairs, first, last } => ChangeAction::Ingested {
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

impl ChangeAction {
    /// The action of an operation in the log.
    fn of(operation: &LogOp<'_>) -> Result<ChangeAction, MalformedPayload> {
        let LogOp {
            seq,
            kind,
            key,
            value: stored,
            ..
        } = *operation;
        let key = Slice::new(key);
        Ok(match kind {
            Kind::Put | Kind::PutExpiring => ChangeAction::Put {
                key,
                value: Slice::new(value_of(kind, stored)),
                expires: expires(kind, stored).map(time_of),
            },
            Kind::Delete => ChangeAction::Delete { key },
            Kind::DeleteRange => ChangeAction::DeleteRange {
                from: key,
                to: (!stored.is_empty()).then(|| Slice::new(stored)),
            },
            Kind::Merge => {
                let operands = Operands::decode(stored)?;
                ChangeAction::Merge {
                    key,
                    base: MergeBase::of(&operands, seq),
                    operands: operands.iter().map(Slice::new).collect(),
                }
            }
            Kind::Operand => {
                let what = "the operand of a record does not decode";
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
    /// The later one of this position and that of `snapshot`, which was taken after this position.
    /// A program that has copied the snapshot reads on here and finds each later change once.
    #[must_use]
    pub fn after(self, snapshot: &Snapshot) -> Position {
        Position {
            number: self.number.max(snapshot.number()),
            ..self
        }
    }
}

/// A named reader of a store's changes. The store records the position that the consumer has
/// acknowledged, and keeps the changes after it.
///
/// Cloning is cheap. All handles with one name stand for the same consumer, also in other threads.
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

    /// The position that it has acknowledged; at first the store's position when the consumer was
    /// created.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer) if it was dropped;
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn position(&self) -> Result<Position> {
        self.store.engine.consumer_position(&self.name)
    }

    /// The changes after its position.
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

    /// Acknowledges all changes before `position`: the store need not keep them for this consumer
    /// any longer. A position before the acknowledged one changes nothing.
    ///
    /// The acknowledgement is durable when this returns, and so are all changes before the
    /// position: a consumer never acknowledges what a power loss can undo. This costs a sync of a
    /// small file, and of the log if it is not durable up to there; so acknowledge after many
    /// changes, not after each.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer) if it was dropped;
    /// [`Error::ChangesGone`](crate::Error::ChangesGone) for a position that the store has not
    /// reached; those of writes.
    pub fn acknowledge(&self, position: Position) -> Result<()> {
        self.store.engine.acknowledge(&self.name, position)
    }
}

/// The state of a consumer, from [`Db::consumers`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// The position that it has acknowledged.
    pub position: Position,
    /// Bytes of the log after that position.
    pub bytes: u64,
    /// Whether it fell too far behind, so that the store no longer keeps the log for it.
    pub is_invalidated: bool,
}

impl Db {
    /// The changes after a position, in the order in which they took effect: each write, batch and
    /// transaction once and as a whole, and creations and drops of keyspaces.
    ///
    /// The log has them as long as it is needed for something else; to be sure to find all of them,
    /// use a [consumer](Db::consumer). Reading costs writers nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{ChangeAction, Db};
    ///
    /// let db = Db::open(dir.path())?;
    /// let before = db.position()?;
    /// db.put("basket", "stones")?;
    /// let mut changes = db.changes(before)?;
    /// let change = changes.next().expect("a change")?;
    /// let operation = &change.operations[0];
    /// assert_eq!(operation.name.as_deref(), Some("default"));
    /// assert!(matches!(&operation.action, ChangeAction::Put { key, .. } if **key == *b"basket"));
    /// assert!(changes.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes). Of the items:
    /// [`Error::ChangesGone`](crate::Error::ChangesGone) if the log does not have all changes after
    /// the position; [`Error::ChangesUnlogged`](crate::Error::ChangesUnlogged);
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

    /// The store's current position: after all changes that readers see. Waits for a write in
    /// progress.
    ///
    /// # Errors
    /// As [`Db::changes`]; those of a log that has failed.
    pub fn position(&self) -> Result<Position> {
        self.handle().position()
    }

    /// The oldest position after which the log has all changes.
    ///
    /// # Errors
    /// As [`Db::changes`].
    pub fn oldest_position(&self) -> Result<Position> {
        self.handle().oldest_position()
    }

    /// The consumer named `name`; creates it durably, at the store's current position, if there is
    /// none. It exists until it is dropped, also after the store is opened again. The store keeps
    /// the changes after the consumer's position, up to
    /// [`Options::changes_bytes_max`](crate::Options::changes_bytes_max).
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
            is_invalidated: state.is_invalidated,
        };
        Ok(states.into_iter().map(info).collect())
    }

    /// Drops a consumer, durably, and frees the log that was kept for it alone.
    ///
    /// # Errors
    /// [`Error::NoSuchConsumer`](crate::Error::NoSuchConsumer);
    /// [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [changes](crate::Capabilities::changes); those of writes.
    pub fn drop_consumer(&self, name: &str) -> Result<()> {
        self.handle().drop_consumer(name)
    }
}
