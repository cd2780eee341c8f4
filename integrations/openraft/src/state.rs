//! The state of a node, and its snapshots.
//!
//! # Layout
//! The note `state` in `raft.notes` has the id of the last applied entry, the membership, and a
//! number N; the state is the keyspace `raft.state.N`. A transaction that applies entries writes
//! the note as well, so each view of the store has state and note of one moment.
//!
//! A snapshot is a file with the pairs of a view: for each pair the length of the key, the key, the
//! length of the value, the value; lengths have four bytes, least significant first. [`END`] in the
//! place of a key's length ends it. The file lives as long as the process; openraft has a new one
//! built when it starts and needs one.
//!
//! # Install
//! A snapshot is ingested into the keyspace with the next number, which the note then names. The
//! next open drops the keyspaces that it does not name.

use std::fs;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gabion::{Db, Durability, Ingest, Isolation, Iter, Keyspace, Transaction, TransactionOptions};
use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, Node, NodeId, OptionalSend,
    RaftSnapshotBuilder, Snapshot, SnapshotMeta, StoredMembership,
};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::fs::File;

use crate::{AnyResult, Stored, TypeConfig, decode, encode, told};

const NOTE: &str = "state";
const KEYSPACE_PREFIX: &str = "raft.state.";
const FILE_PREFIX: &str = "snapshot-";

/// As much as a batch may have: openraft has the entries of an `apply` in memory in any case.
const TRANSACTION_BYTES_MAX: u64 = 1 << 30;

/// Ends a snapshot; longer than any key.
const END: u32 = u32::MAX;

/// What the requests in the log mean.
pub trait Application: Send + Sync + 'static {
    /// A request, as it is in an entry of the log.
    type Request;

    /// What a request is answered. Entries without a request are answered the default.
    type Response: Default;

    /// Applies a request to the state. The transaction sees what earlier requests did; it may read
    /// and write the keyspace `state` and nothing else, which no snapshot would have. The outcome
    /// must follow from state and request alone, since each node applies them by itself.
    ///
    /// # Errors
    /// An error stops the node; a request that is refused is answered by a response.
    fn apply(
        &self,
        transaction: &mut Transaction,
        state: &Keyspace,
        request: Self::Request,
    ) -> gabion::Result<Self::Response>;
}

/// Reads the state of a node, as far as the node has applied it. Cloning is cheap. For a
/// linearizable read, call `openraft::Raft::ensure_linearizable` before.
#[derive(Clone, Debug)]
pub struct StateReader {
    current: Arc<RwLock<Keyspace>>,
}

impl StateReader {
    /// Calls `read` with the keyspace of the state. An installed snapshot puts another keyspace in
    /// its place, and waits for `read`; iterators made by it may live longer.
    pub fn read<T>(&self, read: impl FnOnce(&Keyspace) -> T) -> T {
        read(&self.current.read())
    }
}

/// The note about the state.
#[derive(Default, Deserialize, Serialize)]
#[serde(bound = "")]
struct Applied<I: NodeId, N: Node> {
    last: Option<LogId<I>>,
    membership: StoredMembership<I, N>,
    /// Of the keyspace that has the state.
    keyspace: u64,
}

type AppliedOf<C> = Applied<NodeIdOf<C>, NodeOf<C>>;
type MetaOf<C> = SnapshotMeta<NodeIdOf<C>, NodeOf<C>>;
type NodeIdOf<C> = <C as openraft::RaftTypeConfig>::NodeId;
type NodeOf<C> = <C as openraft::RaftTypeConfig>::Node;

/// The state machine of a node: its state, and the application that changes it. It builds its
/// snapshots as well.
pub struct StateMachine<C: TypeConfig, A> {
    inner: Arc<Inner<C, A>>,
}

struct Inner<C: TypeConfig, A> {
    db: Db,
    notes: Keyspace,
    reader: StateReader,
    application: A,
    snapshots: PathBuf,
    last_snapshot: Mutex<Option<(MetaOf<C>, NamedTempFile)>>,
}

impl<C, A> Inner<C, A>
where
    C: TypeConfig,
    A: Application<Request = C::D, Response = C::R>,
{
    fn note(&self) -> AnyResult<AppliedOf<C>> {
        Ok(decode(self.notes.get(NOTE)?)?.unwrap_or_default())
    }

    fn apply(&self, entries: impl Iterator<Item = Entry<C>>) -> AnyResult<Vec<C::R>> {
        // Nobody else writes the state, so nothing that is read needs a check.
        let options = TransactionOptions::default()
            .isolation(Isolation::Snapshot)
            .bytes_max(TRANSACTION_BYTES_MAX);
        let mut transaction = self.db.begin_with(options)?;
        let state = self.reader.read(Keyspace::clone);
        let mut note = self.note()?;
        let mut responses = Vec::new();
        for Entry { log_id, payload } in entries {
            note.last = Some(log_id.clone());
            responses.push(match payload {
                EntryPayload::Normal(request) => {
                    self.application.apply(&mut transaction, &state, request)?
                }
                EntryPayload::Membership(membership) => {
                    note.membership = StoredMembership::new(Some(log_id), membership);
                    default_response::<A>()
                }
                EntryPayload::Blank => default_response::<A>(),
            });
        }
        transaction.put(&self.notes, NOTE, encode(&note)?)?;
        transaction.commit_with(Durability::Buffered)?;
        Ok(responses)
    }

    /// Writes the state as it is now to a file, while entries are applied.
    fn build_snapshot(&self) -> AnyResult<Snapshot<C>> {
        let (view, state) = self
            .reader
            .read(|state| (self.db.snapshot(), state.clone()));
        let note: Option<AppliedOf<C>> = decode(view.get(&self.notes, NOTE)?)?;
        let note = note.unwrap_or_default();
        let file = self.new_file()?;
        write_pairs(file.as_file(), view.iter(&state))?;
        let meta = SnapshotMeta {
            // The pairs follow from the entries, so the last one's id stands for their bytes.
            snapshot_id: note
                .last
                .as_ref()
                .map_or_else(String::new, LogId::to_string),
            last_log_id: note.last,
            last_membership: note.membership,
        };
        let built = snapshot_of(&meta, &file)?;
        self.keep(meta, file);
        Ok(built)
    }

    /// Replaces the state by that of a snapshot, which becomes the last one.
    fn install_snapshot(&self, meta: MetaOf<C>, mut received: fs::File) -> AnyResult<()> {
        let note = Applied {
            last: meta.last_log_id.clone(),
            membership: meta.last_membership.clone(),
            keyspace: self.note()?.keyspace + 1,
        };
        let name = keyspace_name(note.keyspace);
        // An install that failed has left its keyspace.
        if self.db.keyspace_names().contains(&name) {
            self.db.drop_keyspace(&name)?;
        }
        let state = self.db.keyspace(&name)?;
        received.rewind()?;
        let mut ingest = state.begin_ingest()?;
        read_pairs(&received, &mut ingest)?;
        ingest.finish()?;
        let mut file = self.new_file()?;
        received.rewind()?;
        io::copy(&mut received, &mut file)?;

        let mut current = self.reader.current.write();
        let note = encode(&note)?;
        self.notes.put_with(NOTE, note, Durability::Sync)?;
        let old = std::mem::replace(&mut *current, state);
        drop(current);
        self.keep(meta, file);
        Ok(self.db.drop_keyspace(old.name())?)
    }

    fn new_file(&self) -> AnyResult<NamedTempFile> {
        let named = tempfile::Builder::new()
            .prefix(FILE_PREFIX)
            .tempfile_in(&self.snapshots);
        Ok(named?)
    }

    /// Makes a snapshot the last one. One that was built beside an install may be older.
    fn keep(&self, meta: MetaOf<C>, file: NamedTempFile) {
        let mut last = self.last_snapshot.lock();
        if last
            .as_ref()
            .is_none_or(|(last, _)| last.last_log_id <= meta.last_log_id)
        {
            *last = Some((meta, file));
        }
    }

    fn last_snapshot(&self) -> AnyResult<Option<Snapshot<C>>> {
        let last = self.last_snapshot.lock();
        let last = last.as_ref().map(|(meta, file)| snapshot_of(meta, file));
        last.transpose()
    }
}

fn default_response<A: Application>() -> A::Response {
    A::Response::default()
}

fn keyspace_name(number: u64) -> String {
    format!("{KEYSPACE_PREFIX}{number}")
}

/// A snapshot with a handle of its own to the file.
fn snapshot_of<C: TypeConfig>(meta: &MetaOf<C>, file: &NamedTempFile) -> AnyResult<Snapshot<C>> {
    Ok(Snapshot {
        meta: meta.clone(),
        snapshot: Box::new(File::from_std(file.reopen()?)),
    })
}

fn write_pairs(file: &fs::File, pairs: Iter) -> AnyResult<()> {
    let mut file = BufWriter::new(file);
    for pair in pairs {
        let (key, value) = pair?;
        for part in [key, value] {
            file.write_all(&u32::try_from(part.len())?.to_le_bytes())?;
            file.write_all(&part)?;
        }
    }
    file.write_all(&END.to_le_bytes())?;
    Ok(file.flush()?)
}

fn read_pairs(file: &fs::File, ingest: &mut Ingest<'_>) -> AnyResult<()> {
    let mut file = BufReader::new(file);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let len = read_len(&mut file)?;
        if len == END {
            return Ok(());
        }
        read_part(&mut file, len, &mut key)?;
        let len = read_len(&mut file)?;
        read_part(&mut file, len, &mut value)?;
        ingest.put(&key, &value)?;
    }
}

fn read_len(file: &mut impl Read) -> io::Result<u32> {
    let mut len = [0; 4];
    file.read_exact(&mut len)?;
    Ok(u32::from_le_bytes(len))
}

/// Memory grows with what is there, so a wrong length takes none.
fn read_part(file: &mut impl Read, len: u32, part: &mut Vec<u8>) -> io::Result<()> {
    part.clear();
    match file.take(u64::from(len)).read_to_end(part)? == len as usize {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl<C, A> StateMachine<C, A>
where
    C: TypeConfig,
    A: Application<Request = C::D, Response = C::R>,
{
    pub(crate) fn open(db: &Db, snapshots: &Path, application: A) -> AnyResult<Self> {
        let notes = db.keyspace("raft.notes")?;
        let note: Option<AppliedOf<C>> = decode(notes.get(NOTE)?)?;
        let name = keyspace_name(note.map_or(0, |note| note.keyspace));
        for other in db.keyspace_names() {
            if other.starts_with(KEYSPACE_PREFIX) && other != name {
                db.drop_keyspace(&other)?;
            }
        }
        fs::create_dir_all(snapshots)?;
        for file in fs::read_dir(snapshots)? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with(FILE_PREFIX) {
                fs::remove_file(file.path())?;
            }
        }
        let inner = Inner {
            db: db.clone(),
            notes,
            reader: StateReader {
                current: Arc::new(RwLock::new(db.keyspace(&name)?)),
            },
            application,
            snapshots: snapshots.to_owned(),
            last_snapshot: Mutex::new(None),
        };
        Ok(StateMachine {
            inner: Arc::new(inner),
        })
    }

    /// Reads the state while openraft has the state machine.
    pub fn reader(&self) -> StateReader {
        self.inner.reader.clone()
    }

    /// Does what may take long apart from the runtime's threads.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner<C, A>) -> AnyResult<T> + Send + 'static,
    ) -> AnyResult<T> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await?
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: TypeConfig,
    A: Application<Request = C::D, Response = C::R>,
{
    type SnapshotBuilder = StateMachine<C, A>;

    async fn applied_state(
        &mut self,
    ) -> Stored<
        C,
        (
            Option<LogId<C::NodeId>>,
            StoredMembership<C::NodeId, C::Node>,
        ),
    > {
        let applied = self.inner.note().map(|note| (note.last, note.membership));
        told::<C, _>(applied, ErrorVerb::Read, ErrorSubject::StateMachine)
    }

    async fn apply<I>(&mut self, entries: I) -> Stored<C, Vec<C::R>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let applied = self.inner.apply(entries.into_iter());
        told::<C, _>(applied, ErrorVerb::Write, ErrorSubject::StateMachine)
    }

    async fn get_snapshot_builder(&mut self) -> StateMachine<C, A> {
        StateMachine {
            inner: Arc::clone(&self.inner),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Stored<C, Box<File>> {
        let file = tempfile::tempfile_in(&self.inner.snapshots);
        let file = file.map(|file| Box::new(File::from_std(file)));
        let file = file.map_err(Into::into);
        told::<C, _>(file, ErrorVerb::Write, ErrorSubject::Snapshot(None))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<File>,
    ) -> Stored<C, ()> {
        let signature = meta.signature();
        let (meta, received) = (meta.clone(), snapshot.into_std().await);
        let install = self.apart(|inner| inner.install_snapshot(meta, received));
        let snapshot = ErrorSubject::Snapshot(Some(signature));
        told::<C, _>(install.await, ErrorVerb::Write, snapshot)
    }

    async fn get_current_snapshot(&mut self) -> Stored<C, Option<Snapshot<C>>> {
        let last = self.inner.last_snapshot();
        told::<C, _>(last, ErrorVerb::Read, ErrorSubject::Snapshot(None))
    }
}

impl<C, A> RaftSnapshotBuilder<C> for StateMachine<C, A>
where
    C: TypeConfig,
    A: Application<Request = C::D, Response = C::R>,
{
    async fn build_snapshot(&mut self) -> Stored<C, Snapshot<C>> {
        let built = self.apart(Inner::build_snapshot).await;
        told::<C, _>(built, ErrorVerb::Write, ErrorSubject::Snapshot(None))
    }
}
