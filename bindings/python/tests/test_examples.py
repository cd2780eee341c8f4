"""The examples, and the benchmark on a few records."""

import runpy
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent


def test_visits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(HERE / "examples/visits.py"))["main"](str(tmp_path))
    counts = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert sum(counts) == 400 and counts == sorted(counts, reverse=True)


def test_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["bench.py", "--records", "2000", "--rounds", "1", "--dir", str(tmp_path), "gabion"]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(HERE / "bench.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "| put in batches |" in printed and not list(tmp_path.iterdir())
