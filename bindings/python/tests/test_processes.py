"""Forks, signals, and threads while the store works."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import gabion

CHILD = """
import signal, sys, gabion
# Who started the tests in the background has left interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
store = gabion.open(sys.argv[1])
store.update((b"%08d" % number, b"") for number in range(200_000))
print("ready", flush=True)
while True:
    {scan}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused(store: gabion.Store) -> None:
    store[b"a"] = b"1"
    pairs = iter(store)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: store[b"a"], lambda: store.put(b"b", b"2"), lambda: next(pairs)):
            try:
                call()
            except gabion.ForkedError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert dict(store) == {b"a": b"1"}
    store[b"b"] = b"2"


@pytest.mark.parametrize("scan", ["len(store)", "list(store)", "store == {}"])
def test_an_interrupt_ends_a_scan(tmp_path: Path, scan: str) -> None:
    command = [sys.executable, "-c", CHILD.format(scan=scan), str(tmp_path / "store")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in said


def test_other_threads_go_on(store: gabion.Store) -> None:
    """While one thread loads the store, another one counts."""
    store.update((b"%06d" % number, b"x" * 100) for number in range(20_000))
    is_done = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not is_done.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    store.flush()
    store.compact()
    after = counted
    is_done.set()
    thread.join()
    assert after > before
