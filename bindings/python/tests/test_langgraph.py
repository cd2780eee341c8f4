"""The conformance suite for checkpointers of LangGraph."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

conformance = pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.base import empty_checkpoint

from gabion.langgraph import GabionSaver, _key, _parts


async def test_conformance(tmp_path: Path) -> None:
    number = 0

    @conformance.checkpointer_test(name="GabionSaver")
    async def saver() -> AsyncIterator[GabionSaver]:
        nonlocal number
        number += 1
        with GabionSaver.open(str(tmp_path / str(number))) as one:
            yield one

    report = await conformance.validate(saver)
    results = report.results
    failures = [failure for one in results.values() for failure in one.failures]
    assert not failures
    assert all(one.detected and one.passed for one in results.values()), results
    passed = sum(one.tests_passed for one in results.values())
    print(f"{passed} tests of the conformance suite passed")
    assert passed > 70


def test_keys_keep_the_order_of_tuples() -> None:
    texts = ["", "\0", "\0\0", "\1", "a", "a\0", "a\0b", "aa", "b"]
    tuples = [(one, other) for one in texts for other in texts]
    assert sorted(tuples, key=lambda parts: _key(*parts)) == sorted(tuples)
    assert all(tuple(_parts(_key(*parts))) == parts for parts in tuples)


def test_threads_with_zeros_do_not_mix(tmp_path: Path) -> None:
    with GabionSaver.open(str(tmp_path)) as saver:
        for thread in ("a", "a\0", "ab"):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            saver.put(config, empty_checkpoint(), {"source": "input"}, {})
        saver.delete_thread("a")
        left = [one.config["configurable"]["thread_id"] for one in saver.list(None)]
        assert left == ["a\0", "ab"]
