"""CPython's tests of mappings, on keyspaces, on `gabion.dbm` and on a shelf."""

import shelve
import tempfile
import unittest
from typing import Any

import pytest

import gabion
from gabion import dbm

mapping_tests = pytest.importorskip(
    "test.mapping_tests", reason="this Python comes without its own tests"
)


class _Bytes(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc, name-defined]
    def _reference(self) -> dict[bytes, bytes]:
        return {b"1": b"2", b"key1": b"value1", b"key2": b"value2"}

    def _open(self, path: str) -> Any:
        raise NotImplementedError

    def _empty_mapping(self) -> Any:
        path = tempfile.TemporaryDirectory()
        self.addCleanup(path.cleanup)
        mapping = self._open(path.name)
        self.addCleanup(mapping.close)
        return mapping


class TestStore(_Bytes):
    def _open(self, path: str) -> Any:
        return gabion.open(path, memory_bytes_max="8MiB")

    def test_update(self) -> None:
        """As the inherited one, but for its keys, which are text there."""
        store = self._empty_mapping()
        store.update(self.other)
        self.assertEqual(list(store.items()), sorted(self.other.items()))
        store = self._empty_mapping()
        store.update()
        store.update(list(self.other.items()))
        self.assertEqual(dict(store), self.other)
        for wrong in (42, object()):
            self.assertRaises((TypeError, AttributeError), store.update, wrong)

        class Failing(Exception):
            pass

        class Half:
            def __init__(self, is_late: bool) -> None:
                self.is_late = is_late

            def keys(self) -> Any:
                if not self.is_late:
                    raise Failing
                yield b"a"
                raise Failing

            def __getitem__(self, key: bytes) -> bytes:
                return key

        self.assertRaises(Failing, store.update, Half(False))
        self.assertRaises(Failing, store.update, Half(True))
        self.assertEqual(store[b"a"], b"a")


class TestDatabase(_Bytes):
    def _open(self, path: str) -> Any:
        return dbm.open(path, "c")

    def test_keys(self) -> None:
        """As the inherited one; `dbm` has lists, not views, of keys."""
        database = self._empty_mapping()
        self.assertEqual(database.keys(), [])
        database.update(self.reference)
        self.assertEqual(sorted(database.keys()), sorted(self.reference))


class TestShelf(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc, name-defined]
    type2test = shelve.Shelf

    def _reference(self) -> dict[str, Any]:
        return {"key1": "value1", "key2": 2, "key3": (1, 2, 3)}

    def _empty_mapping(self) -> Any:
        path = tempfile.TemporaryDirectory()
        self.addCleanup(path.cleanup)
        shelf: Any = shelve.Shelf(dbm.open(path.name, "c"))
        self.addCleanup(shelf.close)
        return shelf


del _Bytes
assert issubclass(TestStore, unittest.TestCase)
