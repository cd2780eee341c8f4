"""Gabion: a key-value storage engine for fast storage.

    import gabion

    with gabion.open("store") as store:
        store[b"stone"] = b"granite"
        for key, value in store.prefix(b"st"):
            print(key, value)

A store is a mutable mapping of bytes to bytes, and so is each of its keyspaces. README.md of the
package and the page "Python" of the book say more.
"""

from collections.abc import Mapping, MutableMapping

from ._errors import (
    ArgumentError,
    BusyError,
    ClosedError,
    ConflictError,
    CorruptionError,
    EndedError,
    Error,
    ForeignKeyspaceError,
    ForkedError,
    InternalError,
    KeyspaceDroppedError,
    LimitError,
    LockedError,
    MediaError,
    MergeFailedError,
    MissingFeatureError,
    NewerFormatError,
    NoSpaceError,
    NoSuchKeyspaceError,
    NoSuchSavepointError,
    NotAStoreError,
    OptionError,
    OtherMergeOperatorError,
    ReadOnlyError,
    ReservedNameError,
    RetryError,
    TooManyFilesError,
    TransactionTooOldError,
    UnsupportedError,
)
from ._gabion import (
    Batch,
    Keyspace,
    Pairs,
    Snapshot,
    Store,
    Transaction,
    __version__,
    check,
    destroy,
    open,
)

__all__ = [
    "ArgumentError",
    "Batch",
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "EndedError",
    "Error",
    "ForeignKeyspaceError",
    "ForkedError",
    "InternalError",
    "Keyspace",
    "KeyspaceDroppedError",
    "LimitError",
    "LockedError",
    "MediaError",
    "MergeFailedError",
    "MissingFeatureError",
    "NewerFormatError",
    "NoSpaceError",
    "NoSuchKeyspaceError",
    "NoSuchSavepointError",
    "NotAStoreError",
    "OptionError",
    "OtherMergeOperatorError",
    "Pairs",
    "ReadOnlyError",
    "ReservedNameError",
    "RetryError",
    "Snapshot",
    "Store",
    "TooManyFilesError",
    "Transaction",
    "TransactionTooOldError",
    "UnsupportedError",
    "__version__",
    "check",
    "destroy",
    "open",
]

MutableMapping.register(Keyspace)
Mapping.register(Snapshot)
