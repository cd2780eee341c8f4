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
        "{file}, offset {offset}: {what}. The bytes on the medium are not those that were written; \
         restore the file from a copy, or run `gabion check` to see what is affected",
        file = file.display()
    )]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Offset in bytes of the damaged part.
        offset: u64,
        /// What does not hold.
        what: String,
    },

    /// The directory holds no store, or only parts of one.
    #[error("{path} is not a Gabion store: {why}", path = path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What is missing or foreign.
        why: String,
    },

    /// The file was written by a newer version of Gabion.
    #[error(
        "{file} has format version {found}, this program reads up to version {supported}: \
         open it with a newer Gabion",
        file = file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version that it states.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },

    /// The file has features that this program does not know.
    #[error(
        "{file} has features that this program does not know (bits {features:#x}): open it with a \
         newer Gabion",
        file = file.display()
    )]
    UnknownFeatures {
        /// The file.
        file: PathBuf,
        /// Their bits.
        features: u32,
    },

    /// The file needs a part of Gabion that this program was built without.
    #[error(
        "{file} was written with {feature}, which this program was built without: build it with \
         the feature {feature:?} of gabion",
        file = file.display()
    )]
    MissingFeature {
        /// The file.
        file: PathBuf,
        /// The cargo feature.
        feature: &'static str,
    },

    /// A write failed earlier, so the store takes no more writes. Reads go on, unless it was a
    /// batch of a mapped engine that is there in part.
    #[error(
        "the store is read-only since an earlier failure: {cause}. Nothing acknowledged is lost; \
         mend the cause and open the store again"
    )]
    ReadOnly {
        /// The first failure.
        cause: String,
    },

    /// The store was opened read-only.
    #[error(
        "the store was opened for reading only, and this changes it: open it without \
         Options::read_only"
    )]
    OpenedReadOnly,

    /// An argument is longer than the engine's limit.
    #[error("the {what} has {size} bytes, the limit is {limit}")]
    Limit {
        /// Which argument.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The largest size that is allowed.
        limit: u64,
    },

    /// The pairs of an ingest do not ascend.
    #[error(
        "pair {position} of the ingest has the key \"{key}\", which is not above the one before: \
         its keys must ascend strictly. Nothing of it was written to the store"
    )]
    OutOfOrder {
        /// Which pair, counted from 1.
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

    /// A keyspace of that name does not exist and was not to be created.
    #[error("the store has no keyspace named {name:?}; it has: {existing}")]
    NoSuchKeyspace {
        /// The name asked for.
        name: String,
        /// The names that exist, escaped, separated by commas.
        existing: String,
    },

    /// A keyspace of users cannot have the name.
    #[error(
        "the name {name:?} is reserved: names that begin with \"gabion.\" are for what tools note \
         down about a store; choose another"
    )]
    ReservedName {
        /// The name asked for.
        name: String,
    },

    /// The keyspace was dropped by [`crate::Db::drop_keyspace`], also if there is another one of
    /// its name by now. Nothing was written, of a batch neither to other keyspaces.
    #[error(
        "the keyspace was dropped from the store; get a handle to another one by Db::keyspace or \
         Db::existing_keyspace"
    )]
    KeyspaceDropped,

    /// Somebody else wrote something that the transaction had read, before its commit. The
    /// transaction wrote nothing. [`crate::Db::transact`] runs it again.
    #[error(
        "the transaction conflicts with a write to the key \"{key}\" of the keyspace {keyspace:?}, \
         which it had read before; nothing of it was written: run it again",
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
         of it was written: run it again"
    )]
    TransactionTooOld,

    /// The savepoint is of another transaction, or of a part of this one that was rolled back.
    #[error(
        "the savepoint is not one of the transaction's: it is of another one, or was set after \
         one that was rolled back to"
    )]
    NoSuchSavepoint,

    /// The operator of a keyspace has no result for a key. The key is unreadable until it is put or
    /// deleted, or until the program supplies an operator that succeeds.
    #[error(
        "the merge operator {operator:?} failed for the key \"{key}\" of the store: {why}. Nothing \
         that was merged is lost; put or delete the key, or mend the operator",
        key = key.escape_ascii()
    )]
    MergeFailed {
        /// The operator's name.
        operator: String,
        /// The key.
        key: Vec<u8>,
        /// What the operator says.
        why: String,
    },

    /// The operator of the keyspace refuses the operand. Nothing was written.
    #[error("the merge operator {operator:?} of the store takes no such operand: {why}")]
    OperandRefused {
        /// The operator's name.
        operator: String,
        /// What the operator says.
        why: String,
    },

    /// A merge into a keyspace that has no operator.
    #[error(
        "the keyspace {keyspace:?} of the store has no merge operator: give it one by \
         KeyspaceOptions::merge"
    )]
    NoMergeOperator {
        /// The keyspace's name.
        keyspace: String,
    },

    /// A keyspace has an operator, and was opened without it or with another one.
    #[error(
        "the keyspace {keyspace:?} of the store has the merge operator {kept}, and the program \
         gave {given}: operands mean something else to another one. Open it with KeyspaceOptions \
         that name the one it has"
    )]
    OtherMergeOperator {
        /// The keyspace's name.
        keyspace: String,
        /// The name of the operator that it has, or that it has none.
        kept: String,
        /// The name of the one that the program gave, or that it gave none.
        given: String,
    },

    /// The keyspace belongs to another store than the transaction.
    #[error("the keyspace {keyspace:?} belongs to another store than the transaction")]
    ForeignKeyspace {
        /// The keyspace's name.
        keyspace: String,
    },

    /// The directory holds no repository of backups.
    #[error("{path} is no repository of backups: {why}", path = path.display())]
    NotARepository {
        /// The directory.
        path: PathBuf,
        /// What is missing or foreign.
        why: String,
    },

    /// A repository has no backup of that number.
    #[error("the repository has no backup {id}; it has: {existing}")]
    NoSuchBackup {
        /// The number asked for.
        id: u64,
        /// The numbers that exist, separated by commas.
        existing: String,
    },

    /// A backup cannot be restored, as a part of it is missing or damaged.
    #[error(
        "{file}: {what}, so backup {id} cannot be restored. Restore another one: \
         `gabion backup verify` tells which are whole",
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
    #[error("it was cancelled before its end")]
    Cancelled,

    /// The log has the changes behind a position no more, or has never had that position: what
    /// it was read from is gone after a loss of power, or it is of another store.
    #[error(
        "the changes from that position on are not in the log any more; the oldest that are there \
         follow the position {oldest}: read the store anew, and its changes from where it is then"
    )]
    ChangesGone {
        /// Where the changes begin that are there.
        oldest: Position,
    },

    /// The store has changed in a way that its log does not tell: a keyspace was dropped, or pairs
    /// were ingested, and the process ended or had no room before the log knew.
    #[error(
        "the changes with the numbers {first} to {last} are in no log, as keyspaces were dropped \
         or pairs ingested without room to tell it: read the store anew, or go on from the \
         position {behind}"
    )]
    ChangesUnlogged {
        /// The first number that is missing.
        first: u64,
        /// The last number that is missing.
        last: u64,
        /// The position behind them.
        behind: Position,
    },

    /// There is no consumer of that name, or not any more.
    #[error("the store has no consumer named {name:?}; Db::consumer makes one")]
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

    /// A thread of the store could not be started, so that this was not opened; or it has panicked,
    /// which is a bug, and ends writing.
    #[error("the thread {name} of the store {what}")]
    Thread {
        /// Name of the thread.
        name: String,
        /// What became of it, and the remedy if there is one.
        what: String,
    },

    /// A thread has panicked while it performed a group of writes, which ends writing: a bug, or a
    /// listener to the store's reports that panics. The writes are not acknowledged, though an
    /// opening may find them.
    #[error("a thread panicked in the middle of a group of writes, and said: {what}")]
    Panicked {
        /// What the panic said.
        what: String,
    },

    /// The store was opened by a process that this one was forked of, and stays with that one: it
    /// is neither read nor written here, and nothing of it has changed.
    #[error(
        "the store was opened by process {owner}, of which this process is a fork, and stays with \
         that one: open it after the fork, in one process"
    )]
    Forked {
        /// Process id of the one that opened it.
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
