"""What the tests share: a store in a directory of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import gabion


@pytest.fixture
def store(tmp_path: Path) -> Iterator[gabion.Store]:
    with gabion.open(tmp_path / "store", memory_bytes_max="64MiB") as opened:
        yield opened
