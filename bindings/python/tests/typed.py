"""What mypy is to say about types; `test.sh` has it checked."""

from __future__ import annotations

from typing import assert_type

import gabion


def check(store: gabion.Store, keyspace: gabion.Keyspace) -> None:
    assert_type(store[b"a"], bytes)
    assert_type(store.get(b"a"), bytes | None)
    assert_type(store.get(b"a", b""), bytes)
    assert_type(store.get(b"a", 1), bytes | int)
    assert_type(list(store.range(b"a", b"b")), list[tuple[bytes, bytes]])
    assert_type(list(store.prefix(b"a", part="keys")), list[bytes])
    assert_type(dict(store.snapshot()), dict[bytes, bytes])
    assert_type(store.transact(lambda own: own.savepoint()), int)
    with store.batch() as batch:
        batch.put(bytearray(b"a"), memoryview(b"b"), keyspace)
