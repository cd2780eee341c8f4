//! The storage of an [openraft] node in one [Gabion](gabion) store: the log, the vote, the state
//! machine and its snapshots.
//!
//! [`open`] makes a [`LogStore`] and a [`StateMachine`] for `openraft::Raft::new`. What a request
//! does to the state is an [`Application`]; a [`StateReader`] reads the state.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use gabion::{Keyspace, Transaction, key};
//!
//! openraft::declare_raft_types!(
//!     /// Requests are names to count, answers are the counts.
//!     pub Config: D = String, R = u64, SnapshotData = tokio::fs::File,
//! );
//!
//! struct Counters;
//!
//! impl gabion_openraft::Application for Counters {
//!     type Request = String;
//!     type Response = u64;
//!
//!     fn apply(
//!         &self,
//!         transaction: &mut Transaction,
//!         state: &Keyspace,
//!         name: String,
//!     ) -> gabion::Result<u64> {
//!         let before = transaction.get(state, &name)?;
//!         let count = before.map_or(0, |count| key::parse(&count).unwrap_or(0)) + 1;
//!         transaction.put(state, &name, key::of(&count))?;
//!         Ok(count)
//!     }
//! }
//!
//! let db = gabion::Db::open(dir.path().join("store"))?;
//! let snapshots = dir.path().join("snapshots");
//! let (log, state_machine) = gabion_openraft::open::<Config, _>(&db, &snapshots, Counters)?;
//! # drop((log, state_machine));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Durability
//! All of a node is in one store with one log, and a crash leaves a prefix of the writes. So only
//! what Raft promises to others waits for the medium:
//!
//! - entries are readable when `append` returns, and its callback comes when they are synced; one
//!   sync serves all callbacks that wait;
//! - a vote is synced before `save_vote` returns;
//! - applied entries are not synced by themselves. The id of the last one is in the transaction
//!   that has their effects, so after a loss of power the state is that of some applied entry, and
//!   the log has what follows: the purge of an entry is a later write than its effects;
//! - an installed snapshot replaces the state at once, and is synced.
//!
//! # Engine
//! [`Engine::Wip`](gabion::Engine::Wip), the default: it alone has all that this takes, which are
//! transactions, snapshots, ingests and drops of keyspaces.
//!
//! [openraft]: openraft

mod log;
mod state;

use std::error::Error;
use std::io;
use std::path::Path;

use gabion::{Db, Slice};
use openraft::{
    Entry, ErrorSubject, ErrorVerb, RaftTypeConfig, StorageError, ToStorageResult, TokioRuntime,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::fs::File;

pub use log::LogStore;
pub use state::{Application, StateMachine, StateReader};

/// The types of a node: openraft's own entries and runtime, and files as snapshots, as
/// `openraft::declare_raft_types!` has them with `SnapshotData = tokio::fs::File`.
pub trait TypeConfig:
    RaftTypeConfig<Entry = Entry<Self>, SnapshotData = File, AsyncRuntime = TokioRuntime>
{
}

impl<C> TypeConfig for C where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = File, AsyncRuntime = TokioRuntime>
{
}

/// Opens the log and the state of a node in `db`, for `openraft::Raft::new`, and makes them where
/// they are not there. Snapshots go to files `snapshot-*` in the directory `snapshots`; the files
/// of that name that it has are removed. It should be on the medium of the store.
///
/// A store is of one node. It may have other keyspaces, whose names do not begin with `raft.`.
///
/// # Errors
/// When the store or the directory cannot be read or written.
pub fn open<C, A>(
    db: &Db,
    snapshots: impl AsRef<Path>,
    application: A,
) -> io::Result<(LogStore<C>, StateMachine<C, A>)>
where
    C: TypeConfig,
    A: Application<Request = C::D, Response = C::R>,
{
    let log = LogStore::open(db).map_err(io::Error::other)?;
    let state_machine = StateMachine::open(db, snapshots.as_ref(), application);
    Ok((log, state_machine.map_err(io::Error::other)?))
}

/// A result whose error is of any kind; openraft gets it as a [`StorageError`].
type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What openraft is answered.
type Stored<C, T> = Result<T, StorageError<<C as RaftTypeConfig>::NodeId>>;

/// Makes an error one of openraft's, which stops the node.
#[expect(clippy::result_large_err, reason = "the error is openraft's")]
fn told<C: RaftTypeConfig, T>(
    result: AnyResult<T>,
    verb: ErrorVerb,
    subject: ErrorSubject<C::NodeId>,
) -> Stored<C, T> {
    let result = result.map_err(io::Error::other);
    result.sto_res(|| (subject, verb))
}

/// What entries and notes are stored as: MessagePack, with the names of fields.
fn encode<T: Serialize>(value: &T) -> AnyResult<Vec<u8>> {
    Ok(rmp_serde::to_vec_named(value)?)
}

fn decode<T: DeserializeOwned>(stored: Option<Slice>) -> AnyResult<Option<T>> {
    let value = stored.map(|bytes| rmp_serde::from_slice(&bytes));
    Ok(value.transpose()?)
}
