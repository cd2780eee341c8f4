"""A store for Zarr 3: chunks and metadata as pairs of a keyspace.

    import zarr
    from gabion.zarr import GabionStore

    root = zarr.open_group(GabionStore("weather"), mode="a")

Calls run at once, in the thread that awaits them, where what they need is likely in memory, and in
a thread of their own where they scan.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype

from . import _gabion

__all__ = ["GabionStore"]

# Keys that one thread fetches at a time while a listing goes on.
_PAGE = 1000


class _Shared:
    """An open store, and how many users it has: a directory is open once at a time."""

    def __init__(self, store: _gabion.Store) -> None:
        self.store = store
        self.users = 0


_open: dict[str, _Shared] = {}
_open_lock = threading.Lock()


def _acquire(path: str, options: dict[str, Any]) -> _gabion.Store:
    with _open_lock:
        shared = _open.get(path)
        if shared is None:
            shared = _open[path] = _Shared(_gabion.open(path, **options))
        shared.users += 1
        return shared.store


def _release(path: str) -> None:
    with _open_lock:
        shared = _open.get(path)
        if shared is None:
            return
        shared.users -= 1
        if shared.users == 0:
            del _open[path]
            shared.store.close()


class GabionStore(Store):
    """A Zarr store in the keyspace of a Gabion store.

    Several of the same path share one open store, so they may have different keyspaces and be
    copied and pickled: a copy opens the path where it is used. One process at a time can.

    `options` are those of `gabion.open`.
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keyspace: str = "zarr",
        read_only: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(read_only=read_only)
        self._path = os.path.abspath(os.fspath(path))
        self._keyspace_name = keyspace
        self._options = options
        self._keyspace: _gabion.Keyspace | None = None
        self._lock = threading.Lock()

    def _pairs(self) -> _gabion.Keyspace:
        with self._lock:
            if self._keyspace is None:
                store = _acquire(self._path, self._options)
                self._keyspace = store.keyspace(self._keyspace_name)
                self._is_open = True
            return self._keyspace

    async def _open(self) -> None:
        if self._is_open:
            raise ValueError("store is already open")
        await asyncio.to_thread(self._pairs)

    def close(self) -> None:
        with self._lock:
            if self._keyspace is not None:
                self._keyspace = None
                _release(self._path)
            self._is_open = False

    def __del__(self) -> None:
        if getattr(self, "_keyspace", None) is not None:
            self.close()

    def __getstate__(self) -> tuple[str, str, bool, dict[str, Any]]:
        return (self._path, self._keyspace_name, self.read_only, self._options)

    def __setstate__(self, state: tuple[str, str, bool, dict[str, Any]]) -> None:
        path, keyspace, read_only, options = state
        GabionStore.__init__(self, path, keyspace=keyspace, read_only=read_only, **options)

    def with_read_only(self, read_only: bool = False) -> GabionStore:
        return type(self)(
            self._path, keyspace=self._keyspace_name, read_only=read_only, **self._options
        )

    def __str__(self) -> str:
        return f"gabion://{self._path}#{self._keyspace_name}"

    def __repr__(self) -> str:
        return f"GabionStore('{self}')"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, type(self))
            and self._path == other._path
            and self._keyspace_name == other._keyspace_name
            and self.read_only == other.read_only
        )

    # Without waiting.

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        value = self._pairs().get(key.encode())
        if value is None:
            return None
        buffer = (prototype or default_buffer_prototype()).buffer
        return buffer.from_bytes(value[_part(len(value), byte_range)])

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"the value is a {type(value).__name__}, not a Zarr buffer")
        self._pairs().put(key.encode(), value.to_bytes())

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        self._pairs().delete(key.encode())

    # What Zarr asks for.

    async def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        wanted = list(key_ranges)
        keys = [key.encode() for key, _ in wanted]
        found: list[Buffer | None] = []
        for (_, byte_range), value in zip(wanted, self._pairs().multi_get(keys)):
            if value is None:
                found.append(None)
            else:
                part = value[_part(len(value), byte_range)]
                found.append(prototype.buffer.from_bytes(part))
        return found

    async def exists(self, key: str) -> bool:
        return key.encode() in self._pairs()

    async def getsize(self, key: str) -> int:
        value = self._pairs().get(key.encode())
        if value is None:
            raise FileNotFoundError(key)
        return len(value)

    async def set(self, key: str, value: Buffer) -> None:
        self.set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._pairs().compare_and_swap(key.encode(), None, value.to_bytes())

    async def delete(self, key: str) -> None:
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Deletes a directory at one moment."""
        self._check_writable()
        start = prefix.rstrip("/").encode()
        if start:
            # "0" is the letter behind "/".
            self._pairs().delete_range(start + b"/", start + b"0")
        else:
            self._pairs().clear()

    async def clear(self) -> None:
        self._check_writable()
        self._pairs().clear()

    async def is_empty(self, prefix: str) -> bool:
        start = prefix.encode()
        if start and not start.endswith(b"/"):
            start += b"/"
        return next(self._pairs().prefix(start, part="keys"), None) is None

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        keys = self._pairs().prefix(prefix.encode(), part="keys")
        while page := await asyncio.to_thread(_page, keys):
            for key in page:
                yield key.decode()

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = prefix.rstrip("/").encode()
        if start:
            start += b"/"
        for name in await asyncio.to_thread(lambda: list(self._names(start))):
            yield name.decode()

    def _names(self, start: bytes) -> Iterator[bytes]:
        """The names below a directory: a search for each, however much lies below them."""
        pairs = self._pairs()
        lower, upper = start, start[:-1] + b"0" if start else None
        seen = set()
        while key := next(pairs.range(lower, upper, part="keys"), None):
            name, slash, _ = key[len(start) :].partition(b"/")
            if name not in seen:
                yield name
            if not slash:
                # What lies below a key of the same name comes behind others.
                seen.add(name)
            lower = start + name + (b"0" if slash else b"\0")


def _page(keys: Iterator[bytes]) -> list[bytes]:
    return [key for key, _ in zip(keys, range(_PAGE))]


def _part(size: int, byte_range: ByteRequest | None) -> slice:
    """The part of a value that a request asks for."""
    if byte_range is None:
        return slice(None)
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, None)
    if isinstance(byte_range, SuffixByteRequest):
        return slice(max(0, size - byte_range.suffix), None)
    raise ValueError(f"Unexpected byte_range, got {byte_range}")
