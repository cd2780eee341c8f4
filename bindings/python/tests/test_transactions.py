"""Transactions."""

import threading

import pytest

import gabion


def test_a_block_commits_or_rolls_back(store: gabion.Store) -> None:
    stones = store.keyspace("stones")
    with store.transaction() as own:
        own[b"a"] = b"1"
        own.of(stones)[b"s"] = b"granite"
        assert own[b"a"] == b"1" and b"a" in own and b"a" not in store
        assert own.multi_get([b"a", b"b"]) == [b"1", None]
    assert store[b"a"] == b"1" and stones[b"s"] == b"granite"
    with pytest.raises(ZeroDivisionError), store.transaction() as own:
        own[b"a"] = b"2"
        raise ZeroDivisionError
    assert store[b"a"] == b"1"
    with pytest.raises(gabion.EndedError):
        own[b"a"]
    with store.transaction() as own:
        del own[b"a"]
        own.rollback()
    assert b"a" in store
    with pytest.raises(gabion.EndedError):
        own.commit()


def test_ranges_show_own_writes(store: gabion.Store) -> None:
    store.update({b"%d" % number: b"old" for number in range(5)})
    with store.transaction() as own:
        own[b"1"] = b"new"
        own.delete_range(b"3")
        own[b"9"] = b"new"
        keys = list(own)
        assert keys == [b"0", b"1", b"2", b"9"] and list(reversed(own)) == keys[::-1]
        assert list(own.range(b"1", b"3")) == [(b"1", b"new"), (b"2", b"old")]
        assert list(own.prefix(b"9", part="values")) == [b"new"]
        pairs = own.range(part="keys")
        assert next(pairs) == b"0"
        own.delete(b"1")
        assert list(pairs) == [b"2", b"9"]


def test_savepoints(store: gabion.Store) -> None:
    with store.transaction() as own:
        own[b"a"] = b"1"
        mark = own.savepoint()
        own[b"a"] = b"2"
        own.put(b"b", b"2", expires=60)
        own.rollback_to(mark)
        assert own[b"a"] == b"1" and own.get(b"b") is None
        with pytest.raises(gabion.NoSuchSavepointError):
            own.rollback_to(99)
    assert dict(store) == {b"a": b"1"}


def test_conflicts(store: gabion.Store) -> None:
    own = store.transaction()
    own.get(b"a")
    own[b"b"] = b"1"
    store[b"a"] = b"between"
    with pytest.raises(gabion.ConflictError, match='"a"'):
        own.commit()
    assert isinstance(gabion.ConflictError("x"), gabion.RetryError) and b"b" not in store

    own = store.transaction(isolation="snapshot")
    own.get(b"a")
    own[b"b"] = b"1"
    store[b"a"] = b"again"
    own.commit()
    own = store.transaction(isolation="snapshot")
    own.get_for_update(b"a")
    own[b"b"] = b"2"
    store[b"a"] = b"and again"
    with pytest.raises(gabion.ConflictError):
        own.commit()
    with pytest.raises(gabion.OptionError, match="isolation"):
        store.transaction(isolation="none")


def test_transact_runs_until_nobody_is_in_the_way(store: gabion.Store) -> None:
    def count(own: gabion.Transaction) -> int:
        number = int(own.get(b"count", b"0")) + 1
        own[b"count"] = b"%d" % number
        return number

    def work() -> None:
        for _ in range(50):
            store.transact(count, attempts=10_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store[b"count"] == b"200"
    assert store.transact(count) == 201

    def fight(own: gabion.Transaction) -> None:
        count(own)
        store[b"count"] = b"0"

    with pytest.raises(gabion.ConflictError):
        store.transact(fight, attempts=3)

    def fail(own: gabion.Transaction) -> None:
        own[b"count"] = b"9"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact(fail)
    assert store[b"count"] == b"0"
