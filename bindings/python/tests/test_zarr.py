"""Zarr's own tests of stores, and arrays in a store."""

from pathlib import Path
from typing import Any

import pytest

zarr = pytest.importorskip("zarr")

import numpy as np
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

import gabion
from gabion.zarr import GabionStore


class TestGabionStore(StoreTests[GabionStore, cpu.Buffer]):
    store_cls = GabionStore
    buffer_cls = cpu.Buffer

    async def set(self, store: GabionStore, key: str, value: Buffer) -> None:
        store._pairs()[key.encode()] = value.to_bytes()

    async def get(self, store: GabionStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store._pairs()[key.encode()])

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"path": tmp_path / "store"}

    def test_store_repr(self, store: GabionStore, tmp_path: Path) -> None:
        assert repr(store) == f"GabionStore('gabion://{tmp_path}/store#zarr')"

    def test_store_supports_writes(self, store: GabionStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: GabionStore) -> None:
        assert store.supports_listing


def test_arrays(tmp_path: Path) -> None:
    store = GabionStore(tmp_path / "store", compression="lz4")
    root = zarr.open_group(store, mode="w")
    array = root.create_array("a/heights", shape=(100, 100), chunks=(10, 10), dtype="f8")
    array[:] = np.arange(10_000).reshape(100, 100)
    assert sorted(root["a"].array_keys()) == ["heights"]
    store.close()

    again = GabionStore(tmp_path / "store", read_only=True)
    root = zarr.open_group(again, mode="r")
    assert root["a/heights"][42, 7] == 4207 and root["a/heights"].nchunks_initialized == 100
    with pytest.raises(gabion.LockedError):
        gabion.open(tmp_path / "store")
    again.close()
    with gabion.open(tmp_path / "store") as whole:
        assert len(whole.existing_keyspace("zarr")) == 100 + 3


def test_stores_of_one_path_share_it(tmp_path: Path) -> None:
    stores = [GabionStore(tmp_path, keyspace=name) for name in ("a", "b", "a")]
    for store in stores[:2]:
        store.set_sync("key", cpu.Buffer.from_bytes(b"x"))
    stores[0].delete_sync("key")
    assert stores[2].get_sync("key") is None and stores[1].get_sync("key") is not None
    for store in stores:
        store.close()
        store.close()
    gabion.open(tmp_path).close()
