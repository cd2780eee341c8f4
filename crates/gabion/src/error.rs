//! The errors of the store: sentences that name the cause, the place and the remedy.

use std::path::PathBuf;
use std::sync::Arc;

use crate::position::Position;

/// Result of the store's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. An absent key is not an error but `None`.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The medium refused an operation; the message names the file and the operation. The store may
    /// be locked, a file may be in the way, or the disk may be full or failing:
    /// [`Error::is_locked`], [`Error::is_no_space`] and [`Error::is_too_many_files`] distinguish
    /// the cases that a program may handle.
    #[error(transparent)]
    Media(#[from] Arc<gabion_media::Error>),

    /// Bytes read from a medium fail their checks.
    #[error(
        "{file} is damaged at offset {offset}: {what}; restore the file from a copy, or run \
         `gabion check` to see what is affected",
        file = file.display()
    )]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Offset in bytes of the damaged part.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },

    /// The directory holds no store, or only parts of one.
    #[error("{path} is not a Gabion store: {why}", path = path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What is missing, or does not belong there.
        why: String,
    },

    /// The file was written by a newer version of Gabion.
    #[error(
        "{file} has format version {found}, and this program reads versions up to {supported}; \
         open it with a newer version of Gabion",
        file = file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version in the file.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },

    /// The file has features that this program does not know.
    #[error(
        "{file} has features that this program does not know (bits {features:#x}); open it with a \
         newer version of Gabion",
        file = file.display()
    )]
    UnknownFeatures {
        /// The file.
        file: PathBuf,
        /// The bits of these features.
        features: u32,
    },

    /// The file needs a part of Gabion that this program was built without.
    #[error(
        "{file} was written with {feature}, and this program was built without it; build the \
         program with the feature {feature:?} of gabion",
        file = file.display()
    )]
    MissingFeature {
        /// The file.
        file: PathBuf,
        /// The cargo feature.
        feature: &'static str,
    },

    /// A write failed earlier, so the store takes no more writes. Reads continue, unless a batch of
    /// a mapped engine was written in part.
    #[error(
        "the store is read-only after an earlier failure: {cause}; no acknowledged write is lost: \
         fix the cause and open the store again"
    )]
    ReadOnly {
        /// The first failure.
        cause: String,
    },

    /// The store was opened read-only.
    #[error(
        "the store was opened read-only and cannot be changed; open it without Options::read_only"
    )]
    OpenedReadOnly,

    /// An argument is longer than the engine's limit.
    #[error("the {what} has {size} bytes; the limit is {limit}")]
    Limit {
        /// The argument.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The largest size that is allowed.
        limit: u64,
    },

    /// The pairs of an ingest do not ascend.
    #[error(
        "pair {position} of the ingest has the key \"{key}\", which is not above the key before \
         it; nothing was written to the store: sort the pairs by key, each key once"
    )]
    OutOfOrder {
        /// The pair's number, from 1.
        position: u64,
        /// The first bytes of its key, escaped.
        key: String,
    },

    /// An option has a value that cannot work.
    #[error("option {option}: {why}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// What is wrong with its value, and which values work.
        why: String,
    },

    /// There is no keyspace of that name, and the call does not create one.
    #[error("the store has no keyspace named {name:?}; choose from: {existing}")]
    NoSuchKeyspace {
        /// The name asked for.
        name: String,
        /// The names that exist, escaped, separated by commas.
        existing: String,
    },

    /// A user's keyspace cannot have the name.
    #[error(
        "the name {name:?} is reserved, as all names that begin with \"gabion.\" are; choose \
         another name"
    )]
    ReservedName {
        /// The name asked for.
        name: String,
    },

    /// The keyspace was dropped by [`crate::Db::drop_keyspace`], whether or not there is a new one
    /// of the same name. Nothing was written, not even to the other keyspaces of a batch.
    #[error(
        "the keyspace was dropped from the store; get a handle to another one with Db::keyspace or \
         Db::existing_keyspace"
    )]
    KeyspaceDropped,

    /// Before the commit, another write changed something that the transaction had read. The
    /// transaction wrote nothing. [`crate::Db::transact`] runs it again.
    #[error(
        "the transaction conflicts with a later write to the key \"{key}\" of the keyspace \
         {keyspace:?}, which it had read; nothing was written: run the transaction again",
        key = key.escape_ascii()
    )]
    Conflict {
        /// The keyspace's name.
        keyspace: String,
        /// The key, or one of the range that was read.
        key: Vec<u8>,
    },

    /// The transaction was open for longer than [`crate::Options::transaction_age_max`], and the
    /// store has ended it. It wrote nothing.
    #[error(
        "the transaction was open for longer than the store allows (transaction_age_max); nothing \
         was written: run the transaction again"
    )]
    TransactionTooOld,

    /// The savepoint belongs to another transaction, or to a part of this one that was rolled back.
    #[error(
        "the savepoint is not valid here: it belongs to another transaction, or to a part of this \
         one that was rolled back; set a new one"
    )]
    NoSuchSavepoint,

    /// The operator of a keyspace has no result for a key. The key is unreadable until it is put or
    /// deleted, or until the program supplies an operator that succeeds.
    #[error(
        "the merge operator {operator:?} failed for the key \"{key}\" of the store: {why}; no \
         merged operand is lost: put or delete the key, or fix the operator",
        key = key.escape_ascii()
    )]
    MergeFailed {
        /// The operator's name.
        operator: String,
        /// The key.
        key: Vec<u8>,
        /// The operator's reason.
        why: String,
    },

    /// The operator of the keyspace refuses the operand. Nothing was written.
    #[error(
        "the merge operator {operator:?} of the store refused the operand: {why}; nothing was \
         written"
    )]
    OperandRefused {
        /// The operator's name.
        operator: String,
        /// The operator's reason.
        why: String,
    },

    /// The keyspace of a merge has no operator.
    #[error(
        "the keyspace {keyspace:?} of the store has no merge operator; set one with \
         KeyspaceOptions::merge"
    )]
    NoMergeOperator {
        /// The keyspace's name.
        keyspace: String,
    },

    /// The keyspace was opened without its merge operator, or with another one.
    #[error(
        "the keyspace {keyspace:?} of the store has the merge operator {kept}, and the program \
         gave {given}; open the keyspace with KeyspaceOptions that name the operator it has"
    )]
    OtherMergeOperator {
        /// The keyspace's name.
        keyspace: String,
        /// The name of the operator that it has, or `none`.
        kept: String,
        /// The name of the operator that the program gave, or `none`.
        given: String,
    },

    /// The keyspace belongs to another store than the transaction.
    #[error(
        "the keyspace {keyspace:?} belongs to another store than the transaction; use a keyspace \
         of the transaction's store"
    )]
    ForeignKeyspace {
        /// The keyspace's name.
        keyspace: String,
    },

    /// The directory is not a backup repository.
    #[error("{path} is not a backup repository: {why}", path = path.display())]
    NotARepository {
        /// The directory.
        path: PathBuf,
        /// What is missing, or does not belong there.
        why: String,
    },

    /// The repository has no backup of that number.
    #[error("the repository has no backup {id}; choose from: {existing}")]
    NoSuchBackup {
        /// The number asked for.
        id: u64,
        /// The numbers that exist, separated by commas.
        existing: String,
    },

    /// A backup cannot be restored because a part of it is missing or damaged.
    #[error(
        "backup {id} cannot be restored because of {file}: {what}; restore a backup that `gabion \
         backup verify` reports as whole",
        file = file.display()
    )]
    BackupDamaged {
        /// The number of the backup.
        id: u64,
        /// The object.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },

    /// Nothing can follow what a repository has of a store's log.
    #[error(
        "the log in the repository ends at position {position}: {why}. Make a backup with the log, \
         with which it begins anew"
    )]
    LogArchiveEnded {
        /// The number of the last write that it has; 0 if it has none.
        position: u64,
        /// What cannot be archived.
        why: &'static str,
    },

    /// A repository has no backup and no log from which a store of that moment can be made.
    #[error("no store can be restored to {until}: {why}")]
    NotRestorable {
        /// The moment asked for.
        until: String,
        /// What the repository has instead.
        why: String,
    },

    /// The listener of a backup, a restore or a verification cancelled it.
    #[error("the operation was cancelled before it finished")]
    Cancelled,

    /// The log no longer has all changes after the position, or never had the position: it was lost
    /// in a power failure, or belongs to another store.
    #[error(
        "the log does not have all changes after that position, only those after {oldest}; read \
         the whole store again, and then the changes from the store's current position"
    )]
    ChangesGone {
        /// The position after which the log has all changes.
        oldest: Position,
    },

    /// The store changed without a record in the log: a keyspace was dropped or pairs were
    /// ingested, and the process ended or found no space before it could log this.
    #[error(
        "the log lacks the changes {first} to {last}: a keyspace was dropped or pairs were \
         ingested, and this was not logged; read the whole store again, or continue from the \
         position {behind}"
    )]
    ChangesUnlogged {
        /// The first number that is missing.
        first: u64,
        /// The last number that is missing.
        last: u64,
        /// The position after them.
        behind: Position,
    },

    /// There is no consumer of that name; it may have been dropped.
    #[error("the store has no consumer named {name:?}; create one with Db::consumer")]
    NoSuchConsumer {
        /// The name asked for.
        name: String,
    },

    /// The engine does not support this; see [`crate::Engine::capabilities`].
    #[error("the {engine} engine does not support {operation}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The operation.
        operation: &'static str,
    },

    /// A thread of the store could not be started, so the store was not opened; or it has panicked,
    /// which is a bug and makes the store read-only.
    #[error("the thread {name} of the store {what}")]
    Thread {
        /// Name of the thread.
        name: String,
        /// What happened to it, and the remedy if there is one.
        what: String,
    },

    /// A thread panicked while it performed a group of writes, because of a bug or of a panicking
    /// listener to the store's reports. The store takes no more writes. The writes of the group are
    /// not acknowledged, but may be there after the next open.
    #[error(
        "a thread panicked during a group of writes: {what}; the writes are not acknowledged: open \
         the store again"
    )]
    Panicked {
        /// The message of the panic.
        what: String,
    },

    /// The store was opened by a process that this process was forked from. It can be neither read
    /// nor written here, and nothing was changed.
    #[error(
        "the store was opened by process {owner}, and this process is a fork of it; open the store \
         after the fork, in one process"
    )]
    Forked {
        /// Process id of the process that opened it.
        owner: u32,
    },

    /// The store was closed by [`crate::Db::close`].
    #[error("the store is closed; open it again to use it")]
    Closed,
}

impl From<gabion_media::Error> for Error {
    fn from(error: gabion_media::Error) -> Error {
        Error::Media(Arc::new(error))
    }
}

impl Error {
    /// Whether there was no space, on the medium or in the file of a
    /// [mapped](crate::Capabilities::mapped) store. Such a write is not acknowledged, though one at
    /// [`Durability::Sync`](crate::Durability::Sync) may have taken effect. Writes resume when
    /// there is room, unless [`Stats::read_only`](crate::Stats::read_only) says that the store must
    /// be reopened.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Media(error) if error.is_no_space())
    }

    /// Whether the process or the system has reached its limit of open files. Nothing was written,
    /// and the call succeeds once files are closed or the limit is raised.
    pub fn is_too_many_files(&self) -> bool {
        matches!(self, Error::Media(error) if error.is_too_many_files())
    }

    /// Whether there was too little of something that there may be more of later, so that what
    /// failed is tried again.
    pub(crate) fn is_shortage(&self) -> bool {
        self.is_no_space() || self.is_too_many_files()
    }

    /// Whether a file is not damaged: another program than this one can read it.
    pub(crate) fn needs_another_program(&self) -> bool {
        matches!(
            self,
            Error::NewerFormat { .. }
                | Error::UnknownFeatures { .. }
                | Error::MissingFeature { .. }
        )
    }

    /// Whether the store is open elsewhere, in this process or another one. It can be opened when
    /// it is closed there, and of [`Engine::Scmkv`](crate::Engine::Scmkv) when its last walk over
    /// pairs has ended, too; where the process ends, the system sees to that.
    pub fn is_locked(&self) -> bool {
        matches!(self, Error::Media(error) if matches!(**error, gabion_media::Error::Locked { .. }))
    }
}
