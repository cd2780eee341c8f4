"""Stores, keyspaces, batches, snapshots and expiry."""

import copy
import gc
import pickle
import threading
import time
from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import gabion


def test_a_store_is_a_mapping(store: gabion.Store) -> None:
    assert isinstance(store, MutableMapping)
    assert isinstance(store.snapshot(), Mapping)
    store[b"stone"] = b"granite"
    store[b""] = b""
    assert store[b"stone"] == b"granite" and store[b""] == b""
    assert b"stone" in store and b"sand" not in store
    assert list(store) == [b"", b"stone"] and list(reversed(store)) == [b"stone", b""]
    assert len(store) == 2 and dict(store) == {b"": b"", b"stone": b"granite"}
    with pytest.raises(KeyError) as missing:
        store[b"sand"]
    assert missing.value.args == (b"sand",)
    with pytest.raises(KeyError):
        del store[b"sand"]
    assert store == {b"": b"", b"stone": b"granite"} and store != {}


def test_any_buffer_goes_in_and_text_does_not(store: gabion.Store) -> None:
    store[bytearray(b"a")] = memoryview(b"xyz")[1:]
    assert store[memoryview(b"a")] == b"yz"
    part = memoryview(bytearray(range(10)))[::2]
    store[b"b"] = part
    assert store[b"b"] == bytes([0, 2, 4, 6, 8])
    for wrong in ("text", 1, None):
        with pytest.raises(TypeError, match="bytes-like"):
            store[wrong] = b""  # type: ignore[index]
        with pytest.raises(TypeError, match="bytes-like"):
            store[b"key"] = wrong  # type: ignore[assignment]


def test_ranges_go_both_ways(store: gabion.Store) -> None:
    pairs = [(b"%03d" % number, b"v%d" % number) for number in range(1000)]
    store.update(pairs)
    assert list(store.range()) == pairs
    assert list(store.range(b"100", b"200")) == pairs[100:200]
    assert list(store.range(b"100", b"200", reverse=True)) == pairs[199:99:-1]
    assert list(store.range(b"2", b"1")) == []
    assert list(store.prefix(b"07")) == pairs[70:80]
    assert list(store.prefix(b"07", reverse=True, part="keys")) == [k for k, _ in pairs[79:69:-1]]
    assert list(store.range(b"998", part="values")) == [b"v998", b"v999"]
    assert list(store.items()) == pairs and list(reversed(store.items())) == pairs[::-1]
    assert list(store.values()) == [value for _, value in pairs]
    assert store.keys() & {b"001", b"x"} == {b"001"}
    assert (b"001", b"v1") in store.items()
    with pytest.raises(TypeError, match="keys"):
        store.range(part="halves")  # type: ignore[call-overload]


def test_an_iterator_sees_the_moment_at_which_it_began(store: gabion.Store) -> None:
    store.update({b"%d" % number: b"" for number in range(10)})
    pairs = iter(store)
    assert next(pairs) == b"0"
    store.clear()
    assert len(list(pairs)) == 9 and len(store) == 0


def test_gets_of_several_and_swaps(store: gabion.Store) -> None:
    store[b"a"] = b"1"
    assert store.multi_get([b"b", b"a"]) == [None, b"1"]
    assert store.get(b"b") is None and store.get(b"b", 7) == 7
    assert not store.compare_and_swap(b"a", None, b"2")
    assert store.compare_and_swap(b"a", b"1", None)
    assert store.compare_and_swap(b"a", None, b"2")
    assert store.setdefault(b"a", b"3") == b"2" and store.setdefault(b"c", b"3") == b"3"
    assert store.pop(b"a") == b"2" and store.pop(b"a", None) is None
    store.delete(b"nothing")
    store.delete_range(None, b"d")
    assert not store


def test_values_expire(store: gabion.Store) -> None:
    store.put(b"a", b"1", expires=timedelta(hours=1))
    store.put(b"b", b"2", expires=0.05)
    moment = datetime(2100, 1, 1, tzinfo=timezone.utc)
    store.put(b"c", b"3", expires=moment)
    store.put(b"d", b"4")
    left = store.expires_at(b"a")
    assert left is not None and left - datetime.now(timezone.utc) > timedelta(minutes=59)
    assert store.expires_at(b"c") == moment
    assert store.expires_at(b"d") is None
    deadline = time.monotonic() + 10
    while b"b" in store and time.monotonic() < deadline:
        time.sleep(0.01)
    assert b"b" not in store
    assert store.expire(b"d", 3600) and store.expires_at(b"d") is not None
    assert store.expire(b"d", None) and store.expires_at(b"d") is None
    for wrong in (-1, "soon"):
        with pytest.raises((ValueError, TypeError)):
            store.put(b"e", b"5", expires=wrong)  # type: ignore[arg-type]


def test_merges(store: gabion.Store) -> None:
    sums = store.keyspace("sums", merge="add_u64")

    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    sums.merge(b"a", number(1))
    with store.batch() as batch:
        batch.merge(b"a", number(2), sums)
    with store.transaction() as own:
        own.of(sums).merge(b"a", number(4))
        sums.merge(b"a", number(8), durability="sync")
    assert sums[b"a"] == number(15)
    with pytest.raises(gabion.MergeFailedError, match="add_u64"):
        sums.merge(b"a", b"short")
    with pytest.raises(gabion.OtherMergeOperatorError):
        store.merge(b"a", number(1))
    with pytest.raises(gabion.OptionError, match="multiply"):
        store.keyspace("products", merge="multiply")


def test_keyspaces(store: gabion.Store, tmp_path: Path) -> None:
    sessions = store.keyspace("sessions", default_expiry=timedelta(hours=1), compression="lz4")
    sessions[b"alice"] = b"token"
    assert sessions.name == "sessions" and sessions.expires_at(b"alice") is not None
    assert b"alice" not in store
    assert store.keyspace_names() == ["default", "sessions"]
    assert store.existing_keyspace("sessions")[b"alice"] == b"token"
    with pytest.raises(gabion.NoSuchKeyspaceError, match="choose from: default, sessions"):
        store.existing_keyspace("other")
    store.drop_keyspace("sessions")
    with pytest.raises(gabion.KeyspaceDroppedError):
        sessions[b"alice"]
    with gabion.open(tmp_path / "other") as other:
        with pytest.raises(gabion.ForeignKeyspaceError):
            store.snapshot().of(other)
        with pytest.raises(gabion.ForeignKeyspaceError), store.batch() as batch:
            batch.put(b"a", b"1", other)


def test_batches_are_whole(store: gabion.Store) -> None:
    stones = store.keyspace("stones")
    store[b"b"] = b"2"
    with store.batch(durability="sync") as batch:
        batch[b"a"] = b"1"
        del batch[b"b"]
        batch.put(b"c", b"3", stones)
        batch.put(b"d", b"4", expires=3600)
        batch.delete_range(b"x")
        assert len(batch) == 5 and b"a" not in store
    assert dict(store) == {b"a": b"1", b"d": b"4"} and dict(stones) == {b"c": b"3"}
    with pytest.raises(ZeroDivisionError), store.batch() as batch:
        batch[b"e"] = b"5"
        raise ZeroDivisionError
    assert b"e" not in store


def test_snapshots_stay(store: gabion.Store) -> None:
    stones = store.keyspace("stones")
    store[b"a"], stones[b"s"] = b"1", b"granite"
    with store.snapshot() as moment:
        store.clear()
        stones.clear()
        assert moment[b"a"] == b"1" and dict(moment.of(stones)) == {b"s": b"granite"}
        assert len(moment) == 1 and list(reversed(moment)) == [b"a"]
        assert list(moment.items()) == [(b"a", b"1")] and moment == {b"a": b"1"}
        later = iter(moment)
    assert list(later) == [b"a"]
    with pytest.raises(gabion.ClosedError, match="closed at the end"):
        moment[b"a"]


def test_a_closed_store_answers_with_an_error(tmp_path: Path) -> None:
    store = gabion.open(tmp_path)
    keyspace, moment, transaction = store.keyspace("k"), store.snapshot(), store.transaction()
    store.close()
    store.close()
    for call in (
        lambda: store[b"a"],
        lambda: keyspace.put(b"a", b"1"),
        lambda: moment[b"a"],
        lambda: transaction.get(b"a"),
        lambda: list(store),
        lambda: len(keyspace),
        lambda: store.keyspace("other"),
        lambda: store.flush(),
    ):
        with pytest.raises(gabion.ClosedError):
            call()
    gabion.open(tmp_path).close()


def test_a_store_closes_with_its_last_object(tmp_path: Path) -> None:
    pairs = iter(gabion.open(tmp_path))
    with pytest.raises(gabion.LockedError):
        gabion.open(tmp_path)
    assert list(pairs) == []
    del pairs
    gc.collect()
    gabion.open(tmp_path).close()


def test_options_are_read(tmp_path: Path) -> None:
    with pytest.raises(gabion.OptionError, match="colour: a store has no option of this name"):
        gabion.open(tmp_path / "a", colour="grey")
    with pytest.raises(gabion.OptionError, match="durability"):
        gabion.open(tmp_path / "a", durability="soon")
    with pytest.raises(gabion.NotAStoreError):
        gabion.open(tmp_path / "a", create_if_missing=False)
    with pytest.raises(TypeError, match="memory_bytes_max"):
        gabion.open(tmp_path / "a", memory_bytes_max=[])  # type: ignore[arg-type]
    with gabion.open(tmp_path / "a", engine="flex", garbage_age_max=None) as store:
        assert store.engine == "flex"
        with pytest.raises(gabion.UnsupportedError):
            store.keyspace("k", compression="lz4")
    with gabion.open(tmp_path / "m", engine="scmkv", pool_bytes="64MiB") as store:
        store.update({b"b": b"2", b"a": b"1"})
        assert sorted(store) == [b"a", b"b"] and len(store) == 2 and store
        assert len(store.popitem()) == 2
        store.clear()
        assert not store
        with pytest.raises(gabion.UnsupportedError):
            store.snapshot()
        with pytest.raises(gabion.UnsupportedError):
            list(reversed(store))


def test_a_store_for_reading_only(tmp_path: Path) -> None:
    with gabion.open(tmp_path) as store:
        store[b"a"] = b"1"
    with gabion.open(tmp_path, read_only=True) as store, gabion.open(
        tmp_path, read_only=True
    ) as second:
        assert dict(store) == dict(second) == {b"a": b"1"}
        with pytest.raises(gabion.ReadOnlyError, match="opened read-only"):
            store[b"b"] = b"2"


def test_maintenance(store: gabion.Store, tmp_path: Path) -> None:
    store.update({b"%d" % number: b"x" * 100 for number in range(100)})
    store.flush()
    store.persist()
    store.compact()
    store.wait_idle()
    store.checkpoint(tmp_path / "copy")
    stats = store.stats()
    assert stats["writes"] == 100 and stats["tables"] >= 1
    report = gabion.check(tmp_path / "copy")
    assert report["problems"] == [] and report["entries"] == 100
    with gabion.open(tmp_path / "copy") as copied:
        assert copied == store
    gabion.destroy(tmp_path / "copy")
    with pytest.raises(gabion.NotAStoreError):
        gabion.check(tmp_path / "copy")


def test_nothing_is_pickled(store: gabion.Store) -> None:
    for one in (store, store.keyspace("k"), store.snapshot(), store.batch(), iter(store),
                store.transaction()):
        for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="send the path"):
                refuse(one)
    with pytest.raises(TypeError, match="unhashable"):
        hash(store)


def test_threads_write_and_read_side_by_side(store: gabion.Store) -> None:
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for number in range(500):
                key = b"%d-%d" % (own, number)
                store[key] = key
                assert store[key] == key
            assert len(list(store.prefix(b"%d-" % own))) == 500
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(store) == 2000
