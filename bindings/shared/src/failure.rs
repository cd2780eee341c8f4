//! Failures of calls of a binding.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gabion::{Error, Position};

/// Result of what a binding does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Makes the enum of codes together with its names, so that they cannot drift apart.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $number:literal, $name:literal;)*) => {
        /// The kinds of failures. Their numbers and names stay as they are for good; newer versions
        /// add others.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code {
            $($(#[$doc])* $code = $number,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            /// The name of the kind, in capitals.
            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }
        }
    };
}

codes! {
    /// The medium refused an operation.
    Media = 1, "MEDIA";
    /// The store is open elsewhere, in this process or another one.
    Locked = 2, "LOCKED";
    /// The medium is full.
    NoSpace = 3, "NO_SPACE";
    /// The process or the system has too many files open.
    TooManyFiles = 4, "TOO_MANY_FILES";
    /// Bytes on the medium do not pass their checks.
    Corruption = 5, "CORRUPTION";
    /// The directory holds no store.
    NotAStore = 6, "NOT_A_STORE";
    /// A newer version of Gabion wrote the store.
    NewerFormat = 7, "NEWER_FORMAT";
    /// The store needs a part that this library was built without.
    MissingFeature = 8, "MISSING_FEATURE";
    /// The store is read-only after an earlier failure, or was opened read-only.
    ReadOnly = 9, "READ_ONLY";
    /// A key, a value, a batch, a name or a transaction is too long.
    Limit = 10, "LIMIT";
    /// Pairs that must ascend do not.
    OutOfOrder = 11, "OUT_OF_ORDER";
    /// The option is unknown, or its value is invalid.
    InvalidOption = 12, "INVALID_OPTION";
    /// The store has no keyspace of that name.
    NoSuchKeyspace = 13, "NO_SUCH_KEYSPACE";
    /// The name is reserved for tools.
    ReservedName = 14, "RESERVED_NAME";
    /// The keyspace was dropped.
    KeyspaceDropped = 15, "KEYSPACE_DROPPED";
    /// Another write has changed what the transaction read: run it again.
    Conflict = 16, "CONFLICT";
    /// The transaction was open for too long: run it again.
    TransactionTooOld = 17, "TRANSACTION_TOO_OLD";
    /// The transaction has no such savepoint.
    NoSuchSavepoint = 18, "NO_SUCH_SAVEPOINT";
    /// The keyspace belongs to another store.
    ForeignKeyspace = 19, "FOREIGN_KEYSPACE";
    /// The engine cannot do this.
    Unsupported = 20, "UNSUPPORTED";
    /// The process is a fork of the one that opened the store.
    Forked = 21, "FORKED";
    /// The store is closed.
    Closed = 22, "CLOSED";
    /// The transaction is committed or rolled back.
    Ended = 23, "ENDED";
    /// An argument cannot be: a null pointer, another kind of handle, text that is no UTF-8.
    InvalidArgument = 24, "INVALID_ARGUMENT";
    /// Another thread is using an object that one thread at a time may use.
    Busy = 25, "BUSY";
    /// A thread of the store failed, or Gabion panicked, which is a bug.
    Internal = 26, "INTERNAL";
    /// The merge operator of a keyspace failed for a key.
    MergeFailed = 27, "MERGE_FAILED";
    /// The keyspace has another merge operator than the program gave, or the program gave none.
    OtherMergeOperator = 28, "OTHER_MERGE_OPERATOR";
    /// The directory holds no repository of backups.
    NotARepository = 29, "NOT_A_REPOSITORY";
    /// The repository has no backup of that number.
    NoSuchBackup = 30, "NO_SUCH_BACKUP";
    /// A part of a backup is missing or damaged.
    BackupDamaged = 31, "BACKUP_DAMAGED";
    /// Who listened to the progress of an operation has ended it.
    Cancelled = 32, "CANCELLED";
    /// The log has the changes behind a position no more.
    ChangesGone = 33, "CHANGES_GONE";
    /// Changes were made that the log does not tell.
    ChangesUnlogged = 34, "CHANGES_UNLOGGED";
    /// The store has no consumer of that name.
    NoSuchConsumer = 35, "NO_SUCH_CONSUMER";
}

/// What went wrong.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The store's error, with its sentence.
    Store(Error),
    /// An argument or an option cannot be.
    Refused(Code, String),
    /// The transaction is committed or rolled back.
    Ended,
    /// Another thread is at it.
    Busy,
    /// A panic was caught, and said this.
    Panicked(String),
}

impl Failure {
    /// An argument is invalid.
    pub fn argument(what: impl Into<String>) -> Failure {
        Failure::Refused(Code::InvalidArgument, what.into())
    }

    /// The kind.
    pub fn code(&self) -> Code {
        match self {
            Failure::Store(error) => code_of(error),
            Failure::Refused(code, _) => *code,
            Failure::Ended => Code::Ended,
            Failure::Busy => Code::Busy,
            Failure::Panicked(_) => Code::Internal,
        }
    }

    /// Where changes are there again, if the failure tells that they are not: the oldest position
    /// of [`Code::ChangesGone`], the one behind what is missing of [`Code::ChangesUnlogged`].
    pub fn position(&self) -> Option<Position> {
        match self {
            Failure::Store(Error::ChangesGone { oldest }) => Some(*oldest),
            Failure::Store(Error::ChangesUnlogged { behind, .. }) => Some(*behind),
            _ => None,
        }
    }
}

fn code_of(error: &Error) -> Code {
    match error {
        error if error.is_locked() => Code::Locked,
        error if error.is_no_space() => Code::NoSpace,
        error if error.is_too_many_files() => Code::TooManyFiles,
        Error::Corruption { .. } => Code::Corruption,
        Error::NotAStore { .. } => Code::NotAStore,
        Error::NewerFormat { .. } | Error::UnknownFeatures { .. } => Code::NewerFormat,
        Error::MissingFeature { .. } => Code::MissingFeature,
        Error::ReadOnly { .. } | Error::OpenedReadOnly => Code::ReadOnly,
        Error::Limit { .. } => Code::Limit,
        Error::OutOfOrder { .. } => Code::OutOfOrder,
        Error::InvalidOption { .. } => Code::InvalidOption,
        Error::NoSuchKeyspace { .. } => Code::NoSuchKeyspace,
        Error::ReservedName { .. } => Code::ReservedName,
        Error::KeyspaceDropped => Code::KeyspaceDropped,
        Error::Conflict { .. } => Code::Conflict,
        Error::TransactionTooOld => Code::TransactionTooOld,
        Error::NoSuchSavepoint => Code::NoSuchSavepoint,
        Error::ForeignKeyspace { .. } => Code::ForeignKeyspace,
        Error::Unsupported { .. } => Code::Unsupported,
        Error::Forked { .. } => Code::Forked,
        Error::Closed => Code::Closed,
        Error::MergeFailed { .. } | Error::OperandRefused { .. } => Code::MergeFailed,
        Error::OtherMergeOperator { .. } | Error::NoMergeOperator { .. } => {
            Code::OtherMergeOperator
        }
        Error::NotARepository { .. } => Code::NotARepository,
        Error::NoSuchBackup { .. } => Code::NoSuchBackup,
        Error::BackupDamaged { .. } => Code::BackupDamaged,
        Error::Cancelled => Code::Cancelled,
        Error::ChangesGone { .. } => Code::ChangesGone,
        Error::ChangesUnlogged { .. } => Code::ChangesUnlogged,
        Error::NoSuchConsumer { .. } => Code::NoSuchConsumer,
        Error::Thread { .. } | Error::Panicked { .. } => Code::Internal,
        // What else there is, or will be, has its sentence.
        _ => Code::Media,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Refused(_, what) => f.write_str(what),
            Failure::Ended => {
                f.write_str("the transaction is committed or rolled back; begin another one")
            }
            Failure::Busy => f.write_str(
                "another thread is using this object; use it from one thread at a time, or give \
                 each thread an object of its own",
            ),
            Failure::Panicked(what) => write!(
                f,
                "Gabion panicked, which is a bug: {what}; please report it"
            ),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// Runs what must not panic into another language: a panic becomes a failure.
pub fn guard<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half done is either dropped with the closure, or behind a lock that is
    // poisoned by it.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Err(Failure::Panicked(
                text.unwrap_or_else(|| "nothing".to_owned()),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_differ_and_have_names() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index + 1, "{code:?}");
            let same = Code::ALL.iter().filter(|other| other.name() == code.name());
            assert_eq!(same.count(), 1, "{code:?}");
        }
    }

    #[test]
    fn a_panic_becomes_a_failure_with_its_text() {
        let failure = guard(|| -> Result<()> { panic!("at {}", 7) }).unwrap_err();
        assert_eq!(failure.code(), Code::Internal);
        assert!(failure.to_string().contains("at 7"), "{failure}");
        assert_eq!(guard(|| Ok(3)).unwrap(), 3);
    }

    #[test]
    fn errors_of_the_store_keep_their_sentences() {
        let dir = tempfile::tempdir().unwrap();
        let db = gabion::Db::open(dir.path()).unwrap();
        let error = gabion::Db::open(dir.path()).unwrap_err();
        let failure = Failure::from(error.clone());
        assert_eq!(failure.code(), Code::Locked);
        assert_eq!(failure.to_string(), error.to_string());
        let keyspace = db.default_keyspace().clone();
        db.close().unwrap();
        let failure = Failure::from(keyspace.get("stone").unwrap_err());
        assert_eq!(failure.code(), Code::Closed);
    }
}
