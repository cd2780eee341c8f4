"""Holders of a lock of Redlock on three servers, each of which is killed.

    redlock_holders.py PORT,PORT,PORT COUNT KILL...
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from redlock import MultipleRedlockException, Redlock

PORTS, COUNT, KILL = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3:]
HOLDERS = 4

# How long a lock is held at most. Whoever is kept waiting that long no longer has it.
MILLISECONDS = 5000

servers = [{"host": "127.0.0.1", "port": int(port), "db": 0} for port in PORTS]


class Place:
    """What the lock guards: nothing else does."""

    def __init__(self):
        self.entered = 0
        self.inside = 0
        self.together = 0
        self.in_vain = 0

    def enter(self):
        self.inside += 1
        self.together = max(self.together, self.inside)
        entered = self.entered
        time.sleep(0.001)
        self.entered = entered + 1
        self.inside -= 1


def hold(place):
    locks = Redlock(servers)
    while place.entered < COUNT:
        try:
            lock = locks.lock("place", MILLISECONDS)
        except MultipleRedlockException:
            # A server is away. What the others have granted ends by itself.
            lock = False
        if not lock:
            place.in_vain += 1
            continue
        if place.entered < COUNT:
            place.enter()
        try:
            locks.unlock(lock)
        except MultipleRedlockException:
            place.in_vain += 1


def check(name, is_passed, words):
    print(f"{'passed' if is_passed else 'failed'} {name}: {words}")


def main():
    place = Place()
    with ThreadPoolExecutor(HOLDERS) as threads:
        holders = [threads.submit(hold, place) for _ in range(HOLDERS)]
        killed = 0
        while killed < len(PORTS):
            if place.entered >= COUNT * (killed + 1) // (len(PORTS) + 1):
                killed += 1
                subprocess.run([*KILL[:-1], f"{KILL[-1][:-1]}{killed}"], check=True)
            if all(holder.done() for holder in holders):
                break
            time.sleep(0.01)
        for holder in holders:
            holder.result()
    check("kills", killed == len(PORTS), f"{killed} were in time")
    words = f"{place.entered} entered, at most {place.together} at once"
    check("exclusion", place.entered == COUNT and place.together == 1, words)
    print(f"told {COUNT} locks of Redlock, {killed} kills, {place.in_vain} in vain")


main()
