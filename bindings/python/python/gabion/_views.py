"""Views of keyspaces and snapshots: sets and collections that go through pairs in one scan."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any


class _View:
    # What goes through a part of all pairs.
    _mapping: Any

    def _go(self, part: str, reverse: bool = False) -> Iterator[Any]:
        pairs: Iterator[Any] = self._mapping._scan(part, reverse)
        return pairs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping!r})"


class Keys(_View, KeysView[bytes]):
    __slots__ = ()

    def __iter__(self) -> Iterator[bytes]:
        return self._go("keys")

    def __reversed__(self) -> Iterator[bytes]:
        return self._go("keys", True)


class Values(_View, ValuesView[bytes]):
    __slots__ = ()

    def __iter__(self) -> Iterator[bytes]:
        return self._go("values")

    def __reversed__(self) -> Iterator[bytes]:
        return self._go("values", True)


class Items(_View, ItemsView[bytes, bytes]):
    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._go("items")

    def __reversed__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._go("items", True)
