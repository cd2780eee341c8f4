"""Exceptions. Each has the message of Gabion's error, which names the cause and the remedy."""


class Error(Exception):
    """The base class of all errors of Gabion."""


class MediaError(Error):
    """The medium refused an operation."""


class LockedError(MediaError):
    """The store is open elsewhere, in this process or another one."""


class NoSpaceError(MediaError):
    """The medium is full."""


class TooManyFilesError(MediaError):
    """The process or the system has too many files open."""


class CorruptionError(Error):
    """Bytes on the medium do not pass their checks."""


class NotAStoreError(Error):
    """The directory holds no store."""


class NewerFormatError(Error):
    """A newer version of Gabion wrote the store."""


class MissingFeatureError(Error):
    """The store needs a part that this package was built without."""


class ReadOnlyError(Error):
    """The store is read-only after an earlier failure, or was opened read-only."""


class LimitError(Error, ValueError):
    """A key, a value, a batch, a name or a transaction is too long."""


class OptionError(Error, ValueError):
    """The option is unknown, or its value is invalid."""


class ArgumentError(Error, ValueError):
    """An argument is invalid."""


class NoSuchKeyspaceError(Error, LookupError):
    """The store has no keyspace of that name."""


class ReservedNameError(Error, ValueError):
    """The name is reserved for tools."""


class KeyspaceDroppedError(Error):
    """The keyspace was dropped."""


class RetryError(Error):
    """The transaction had no effect; run it again."""


class ConflictError(RetryError):
    """Another write has changed what the transaction read."""


class TransactionTooOldError(RetryError):
    """The transaction was open for longer than the store allows."""


class NoSuchSavepointError(Error, LookupError):
    """The transaction has no such savepoint."""


class ForeignKeyspaceError(Error, ValueError):
    """The keyspace belongs to another store."""


class UnsupportedError(Error):
    """The engine cannot do this."""


class ForkedError(Error):
    """The process is a fork of the one that opened the store."""


class ClosedError(Error):
    """The store is closed."""


class EndedError(Error):
    """The transaction is committed or rolled back."""


class BusyError(Error):
    """Another thread is using an object that one thread at a time may use."""


class InternalError(Error):
    """A thread of the store failed, or Gabion panicked, which is a bug."""


class MergeFailedError(Error):
    """The merge operator of a keyspace failed for a key."""


class OtherMergeOperatorError(Error, ValueError):
    """The keyspace has another merge operator than the program gave, or the program gave none."""
