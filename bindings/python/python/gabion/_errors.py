"""Exceptions. Each has the sentence of Gabion's error, which names the cause and the remedy."""


class Error(Exception):
    """What a store could not do."""


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
    """An earlier failure ended writing, or the store was opened for reading only."""


class LimitError(Error, ValueError):
    """A key, a value, a batch, a name or a transaction is too long."""


class OptionError(Error, ValueError):
    """There is no such option, or its value cannot work."""


class ArgumentError(Error, ValueError):
    """An argument cannot be."""


class NoSuchKeyspaceError(Error, LookupError):
    """The store has no keyspace of that name."""


class ReservedNameError(Error, ValueError):
    """The name is reserved for tools."""


class KeyspaceDroppedError(Error):
    """The keyspace was dropped."""


class RetryError(Error):
    """The transaction had no effect and is to be run again."""


class ConflictError(RetryError):
    """The transaction has read what somebody else has written since."""


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
    """Another thread uses what only one may use at a time."""


class InternalError(Error):
    """A thread of the store failed, or a bug of Gabion's was stopped at its border."""


class MergeFailedError(Error):
    """The merge operator of a keyspace failed for a key."""


class OtherMergeOperatorError(Error, ValueError):
    """The keyspace has another merge operator than the program gave, or the program gave none."""
