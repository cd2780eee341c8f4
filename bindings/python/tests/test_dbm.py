"""`gabion.dbm`: flags, text, and shelves."""

import shelve
from pathlib import Path

import pytest

from gabion import dbm


def test_flags(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    for flag in ("r", "w"):
        with pytest.raises(dbm.error):
            dbm.open(path, flag)
    with pytest.raises(ValueError, match="flag"):
        dbm.open(path, "x")
    assert dbm.whichdb(path) is None
    with dbm.open(path, "c") as database:
        database["text"] = "words"
        database[b"a"] = b"1"
        assert database[b"text"] == b"words" and database.get("b") is None
        assert database.firstkey() == b"a" and database.nextkey(b"a") == b"text"
        assert database.nextkey("text") is None and database.keys() == [b"a", b"text"]
        database.sync()
        del database["a"]
        database.reorganize()
    database.close()
    with pytest.raises(dbm.error, match="closed"):
        database["text"]
    assert dbm.whichdb(path) == "gabion.dbm" and dbm.whichdb(tmp_path) == ""
    with dbm.open(path) as database:
        assert dict(database) == {b"text": b"words"} and "text" in database
        with pytest.raises(dbm.error, match='flag "r"'):
            database["text"] = ""
        with dbm.open(path, "r") as second:
            assert second["text"] == b"words"
        with pytest.raises(dbm.error):
            dbm.open(path, "w")
    with dbm.open(path, "n") as database:
        assert len(database) == 0


def test_a_shelf(tmp_path: Path) -> None:
    with shelve.Shelf(dbm.open(tmp_path, "c"), writeback=True) as shelf:
        shelf["list"] = [1, 2]
        shelf["list"].append({"three": 3})
    with shelve.Shelf(dbm.open(tmp_path, "r")) as shelf:
        assert shelf["list"] == [1, 2, {"three": 3}] and list(shelf) == ["list"]
