"""Counts visits by several threads, and shows the most visited pages.

Usage: python visits.py DIRECTORY
"""

from __future__ import annotations

import random
import sys
import threading

import gabion


def visit(store: gabion.Store, pages: gabion.Keyspace, page: bytes) -> int:
    def count(transaction: gabion.Transaction) -> int:
        own = transaction.of(pages)
        visits = int(own.get(page, b"0")) + 1
        own[page] = b"%d" % visits
        return visits

    return store.transact(count)


def main(path: str) -> None:
    with gabion.open(path, memory_bytes_max="64MiB") as store:
        pages = store.keyspace("pages", compression="lz4")

        def work(seed: int) -> None:
            numbers = random.Random(seed)
            for _ in range(100):
                visit(store, pages, b"/page/%d" % numbers.randrange(5))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for page, visits in sorted(pages.items(), key=lambda pair: -int(pair[1])):
            print(page.decode(), visits.decode())


if __name__ == "__main__":
    main(sys.argv[1])
