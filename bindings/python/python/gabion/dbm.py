"""The interface of the standard library's `dbm`, on a store.

    import shelve
    from gabion import dbm

    shelf = shelve.Shelf(dbm.open("notes", "c"))

`open` takes the flags of `dbm.open`. Keys and values are bytes; text stands for its UTF-8.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, MutableMapping
from types import TracebackType
from typing import TypeVar

from . import _gabion
from ._errors import Error as error

__all__ = ["error", "open", "Database", "whichdb"]

_T = TypeVar("_T")


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


class Database(MutableMapping[bytes, bytes]):
    """A store as `dbm` has databases. Writes are durable as the store's options say."""

    def __init__(self, store: _gabion.Store, is_read_only: bool) -> None:
        self._store = store
        self._is_read_only = is_read_only
        self._is_closed = False

    def _check(self, is_write: bool = False) -> None:
        if self._is_closed:
            raise error("the database is closed; open it again")
        if is_write and self._is_read_only:
            raise error('the database was opened with the flag "r"; open it with "w" or "c"')

    def __getitem__(self, key: bytes | str) -> bytes:
        self._check()
        return self._store[_bytes(key)]

    def __setitem__(self, key: bytes | str, value: bytes | str) -> None:
        self._check(is_write=True)
        self._store[_bytes(key)] = _bytes(value)

    def __delitem__(self, key: bytes | str) -> None:
        self._check(is_write=True)
        del self._store[_bytes(key)]

    def __contains__(self, key: object) -> bool:
        self._check()
        return isinstance(key, (bytes, str)) and _bytes(key) in self._store

    def __iter__(self) -> Iterator[bytes]:
        self._check()
        return iter(self._store)

    def __len__(self) -> int:
        self._check()
        return len(self._store)

    def keys(self) -> builtins.list[bytes]:  # type: ignore[override]
        """All keys, as a list: so `dbm` has it."""
        return list(self)

    def firstkey(self) -> bytes | None:
        """The first key; None if there is none."""
        self._check()
        return next(iter(self._store), None)

    def nextkey(self, key: bytes | str) -> bytes | None:
        """The key behind another one; None if there is none."""
        self._check()
        above = _bytes(key) + b"\0"
        return next(self._store.range(above, part="keys"), None)

    def reorganize(self) -> None:
        """Gives space back that deleted pairs take."""
        self._check(is_write=True)
        self._store.compact()

    def sync(self) -> None:
        """Brings all writes to the medium."""
        self._check()
        if not self._is_read_only:
            self._store.persist()

    def close(self) -> None:
        """Closes the database; once more does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open(file: str | os.PathLike[str], flag: str = "r", mode: int = 0o666) -> Database:
    """Opens the database in a directory.

    The flag is "r" to read one that exists, which any number of processes may do at a time, "w" to
    write to it, "c" to make it if it is not there,
    "n" for a new one in any case. The mode, and what follows the first letter of the flag, say
    nothing to a store.
    """
    kind = flag[:1]
    if kind not in ("r", "w", "c", "n"):
        raise ValueError(f'the flag {flag!r} is not one of "r", "w", "c" and "n"')
    path = os.fspath(file)
    if kind == "n" and os.path.isdir(path) and os.listdir(path):
        _gabion.destroy(path)
    store = _gabion.open(path, create_if_missing=kind in ("c", "n"), read_only=kind == "r")
    return Database(store, is_read_only=kind == "r")


def whichdb(file: str | os.PathLike[str]) -> str | None:
    """"gabion.dbm" for the directory of a store; "" for anything else; None for nothing."""
    path = os.fspath(file)
    if not os.path.exists(path):
        return None
    return "gabion.dbm" if os.path.isfile(os.path.join(path, "CURRENT")) else ""
