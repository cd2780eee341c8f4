"""Puts, gets and scans beside lmdb, rocksdict and plyvel, in turns.

    python bench.py [--records N] [--rounds N] [--dir DIRECTORY] [STORE ...]

Each store gets the same records of 16 + 100 bytes, in the same random order, at the durability
that it has by default for single writes without a sync: all of them survive the death of the
process, lmdb only what a transaction of 1,000 puts has committed. The stores take turns, round by
round, so that what else the machine does falls on all of them; what is printed is the median of
the rounds, in thousands of operations per second. A store whose package is not installed is left
out, which is said.
"""

from __future__ import annotations

import argparse
import importlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VALUE_BYTES = 100
SCAN_PAIRS = 100
BATCH_PUTS = 1000


class Gabion:
    package = "gabion"

    def __init__(self, path: Path) -> None:
        self.store = importlib.import_module("gabion").open(path)
        self.put = self.store.put
        self.get = self.store.get

    def put_batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.store.batch() as batch:
            put = batch.put
            for key, value in pairs:
                put(key, value)

    def scan(self, key: bytes, count: int) -> int:
        return sum(1 for _ in zip(self.store.range(key), range(count)))

    def close(self) -> None:
        self.store.close()


class Lmdb:
    package = "lmdb"

    def __init__(self, path: Path) -> None:
        module = importlib.import_module("lmdb")
        self.store = module.open(str(path), map_size=8 << 30, sync=False, readahead=False)
        self.reader = self.store.begin()
        self.get = lambda key: self.fresh().get(key)
        self.writes: Any = None
        self.left = 0
        self.is_stale = False

    def fresh(self) -> Any:
        if self.is_stale:
            self.commit()
            self.reader = self.store.begin()
            self.is_stale = False
        return self.reader

    def commit(self) -> None:
        if self.writes is not None:
            self.writes.commit()
            self.writes = None

    def put(self, key: bytes, value: bytes) -> None:
        if self.writes is None:
            self.writes, self.left = self.store.begin(write=True), BATCH_PUTS
        self.writes.put(key, value)
        self.left -= 1
        self.is_stale = True
        if self.left == 0:
            self.commit()

    def put_batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.commit()
        with self.store.begin(write=True) as writes:
            for key, value in pairs:
                writes.put(key, value)
        self.is_stale = True

    def scan(self, key: bytes, count: int) -> int:
        cursor = self.fresh().cursor()
        cursor.set_range(key)
        return sum(1 for _ in zip(cursor, range(count)))

    def close(self) -> None:
        self.commit()
        self.reader.abort()
        self.store.close()


class Rocksdict:
    package = "rocksdict"

    def __init__(self, path: Path) -> None:
        self.module = importlib.import_module("rocksdict")
        self.store = self.module.Rdict(str(path), self.module.Options(raw_mode=True))
        self.put = self.store.put
        self.get = self.store.get

    def put_batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        batch = self.module.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.store.write(batch)

    def scan(self, key: bytes, count: int) -> int:
        return sum(1 for _ in zip(self.store.items(from_key=key), range(count)))

    def close(self) -> None:
        self.store.close()


class Plyvel:
    package = "plyvel"

    def __init__(self, path: Path) -> None:
        module = importlib.import_module("plyvel")
        self.store = module.DB(
            str(path), create_if_missing=True, lru_cache_size=256 << 20, bloom_filter_bits=10
        )
        self.put = self.store.put
        self.get = self.store.get

    def put_batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.store.write_batch() as batch:
            for key, value in pairs:
                batch.put(key, value)

    def scan(self, key: bytes, count: int) -> int:
        return sum(1 for _ in zip(self.store.iterator(start=key), range(count)))

    def close(self) -> None:
        self.store.close()


STORES: list[Any] = [Gabion, Lmdb, Rocksdict, Plyvel]


def timed(count: int, work: Callable[[], None]) -> float:
    """Thousands of operations per second."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start) / 1000


def run_round(store: Any, keys: list[bytes], value: bytes, seed: int) -> dict[str, float]:
    numbers = random.Random(seed)
    wanted = [numbers.choice(keys) for _ in range(len(keys) // 2)]
    scans = wanted[: max(1, len(wanted) // SCAN_PAIRS)]
    half = len(keys) // 2

    def put() -> None:
        call = store.put
        for key in keys[:half]:
            call(key, value)

    def put_batches() -> None:
        for start in range(half, len(keys), BATCH_PUTS):
            store.put_batch([(key, value) for key in keys[start : start + BATCH_PUTS]])

    def get() -> None:
        call = store.get
        for key in wanted:
            if call(key) is None:
                raise RuntimeError(f"{key!r} is missing")

    def scan() -> None:
        for key in scans:
            store.scan(key, SCAN_PAIRS)

    return {
        "put": timed(half, put),
        "put in batches": timed(len(keys) - half, put_batches),
        "get": timed(len(wanted), get),
        "pairs of scans": timed(len(scans) * SCAN_PAIRS, scan),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=200_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--dir", type=Path, default=None, metavar="DIRECTORY")
    names = [one.package for one in STORES]
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(names))
    arguments = parser.parse_args()
    value = random.Random(7).randbytes(VALUE_BYTES)
    figures: dict[str, dict[str, list[float]]] = {}
    chosen = []
    for kind in STORES:
        if arguments.stores and kind.package not in arguments.stores:
            continue
        try:
            importlib.import_module(kind.package)
            chosen.append(kind)
        except ImportError:
            print(f"left out: {kind.package} is not installed")
    for number in range(arguments.rounds):
        numbers = random.Random(number)
        keys = [b"%016x" % numbers.getrandbits(64) for _ in range(arguments.records)]
        for kind in chosen:
            path = Path(tempfile.mkdtemp(dir=arguments.dir))
            try:
                store = kind(path / "store")
                for name, figure in run_round(store, keys, value, number).items():
                    figures.setdefault(name, {}).setdefault(kind.package, []).append(figure)
                store.close()
            finally:
                shutil.rmtree(path)
    packages = [kind.package for kind in chosen]
    print(f"| thousands per second | {' | '.join(packages)} |")
    print(f"|---|{'---|' * len(packages)}")
    for name, found in figures.items():
        medians = [f"{statistics.median(found[package]):.0f}" for package in packages]
        print(f"| {name} | {' | '.join(medians)} |")


if __name__ == "__main__":
    main()
