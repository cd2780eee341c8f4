"""A checkpointer for LangGraph: threads, checkpoints and writes as pairs of keyspaces.

    from gabion.langgraph import GabionSaver

    with GabionSaver.open("checkpoints") as saver:
        graph = builder.compile(checkpointer=saver)

Keys are tuples of text, encoded so that their order is that of the tuples. Each call is one batch:
a crash leaves a checkpoint with all of its channels, or none of it.

| keyspace | key | value |
|---|---|---|
| checkpoints | thread, namespace, checkpoint | checkpoint, metadata, parent, run |
| channels | thread, namespace, channel, version | the channel's value |
| writes | thread, namespace, checkpoint, task path, task, index | channel, value |
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from . import _gabion

__all__ = ["GabionSaver"]

# Indexes of special writes are negative; keys have them as numbers from 0 on.
_INDEX_BASE = 1 << 16


def _key(*parts: str) -> bytes:
    """Text with a zero and a one for each zero in it, and two zeros behind each part: ordered as
    the tuples are."""
    return b"".join(part.encode().replace(b"\0", b"\0\1") + b"\0\0" for part in parts)


def _parts(key: bytes) -> list[str]:
    return [part.replace(b"\0\1", b"\0").decode() for part in key.split(b"\0\0")[:-1]]


def _pack(*fields: bytes) -> bytes:
    """Byte strings, each behind its length."""
    return b"".join(len(field).to_bytes(4, "little") + field for field in fields)


def _unpack(packed: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "little")
        fields.append(packed[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


class GabionSaver(BaseCheckpointSaver[str]):
    """A checkpointer on an open store, of which it uses three keyspaces.

    Methods that begin with `a` run the others in a thread.
    """

    def __init__(
        self,
        store: _gabion.Store,
        *,
        name: str = "langgraph",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._store = store
        self._checkpoints = store.keyspace(f"{name}.checkpoints")
        self._channels = store.keyspace(f"{name}.channels")
        self._writes = store.keyspace(f"{name}.writes")
        # Who changes writes reads them first.
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, path: str, *, serde: SerializerProtocol | None = None, **options: Any
    ) -> GabionSaver:
        """Opens a store of its own, which the end of a `with` block closes."""
        return cls(_gabion.open(path, **options), serde=serde)

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> GabionSaver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Values with their types.

    def _dump(self, value: Any) -> bytes:
        kind, data = self.serde.dumps_typed(value)
        return _pack(kind.encode(), data)

    def _load(self, packed: bytes) -> Any:
        kind, data = _unpack(packed)
        return self.serde.loads_typed((kind.decode(), data))

    # What others ask for.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable = config["configurable"]
        thread, namespace = configurable["thread_id"], configurable.get("checkpoint_ns", "")
        kept: dict[str, Any] = dict(checkpoint)
        values = kept.pop("channel_values")
        whole = get_checkpoint_metadata(config, metadata)
        record = _pack(
            self._dump(kept),
            self._dump(whole),
            (configurable.get("checkpoint_id") or "").encode(),
            str(whole.get("run_id") or "").encode(),
        )
        with self._store.batch() as batch:
            for channel, version in new_versions.items():
                key = _key(thread, namespace, channel, str(version))
                value = self._dump(values[channel]) if channel in values else b""
                batch.put(key, value, self._channels)
            batch.put(_key(thread, namespace, checkpoint["id"]), record, self._checkpoints)
        return _config(thread, namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        configurable = config["configurable"]
        start = _key(
            configurable["thread_id"],
            configurable.get("checkpoint_ns", ""),
            configurable["checkpoint_id"],
        )
        with self._lock, self._store.batch() as batch:
            known = {}
            for key in self._writes.prefix(start, part="keys"):
                _, task, index = _parts(key[len(start) :])
                known[task, int(index)] = key
            for place, (channel, value) in enumerate(writes):
                number = WRITES_IDX_MAP.get(channel, place)
                before = known.get((task_id, number + _INDEX_BASE))
                if before is not None:
                    if number >= 0:
                        continue
                    batch.delete(before, self._writes)
                index = f"{number + _INDEX_BASE:08}"
                record = _pack(channel.encode(), self._dump(value))
                batch.put(start + _key(task_path, task_id, index), record, self._writes)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        configurable = config["configurable"]
        thread, namespace = configurable["thread_id"], configurable.get("checkpoint_ns", "")
        with self._store.snapshot() as moment:
            checkpoints = moment.of(self._checkpoints)
            if checkpoint_id := get_checkpoint_id(config):
                key = _key(thread, namespace, checkpoint_id)
                record = checkpoints.get(key)
                if record is None:
                    return None
            else:
                start = _key(thread, namespace)
                newest = next(checkpoints.prefix(start, reverse=True), None)
                if newest is None:
                    return None
                key, record = newest
            return self._tuple(moment, key, record)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        configurable = config["configurable"] if config else {}
        parts = []
        if "thread_id" in configurable:
            parts.append(configurable["thread_id"])
            if "checkpoint_ns" in configurable:
                parts.append(configurable["checkpoint_ns"])
        wanted = get_checkpoint_id(config) if config else None
        last = get_checkpoint_id(before) if before else None
        with self._store.snapshot() as moment:
            left = limit
            for key, record in self._newest_first(moment, _key(*parts)):
                if left == 0:
                    return
                checkpoint_id = _parts(key)[2]
                if wanted and checkpoint_id != wanted:
                    continue
                if last and checkpoint_id >= last:
                    continue
                metadata = self._load(_unpack(record)[1])
                if filter and any(metadata.get(name) != value for name, value in filter.items()):
                    continue
                yield self._tuple(moment, key, record)
                if left is not None:
                    left -= 1

    def _newest_first(
        self, moment: _gabion.Snapshot, start: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        """Checkpoints by thread and namespace, and within these the newest first."""
        checkpoints = moment.of(self._checkpoints)
        lower = start
        while key := next(checkpoints.range(lower, part="keys"), None):
            if not key.startswith(start):
                return
            thread, namespace, _ = _parts(key)
            group = _key(thread, namespace)
            yield from checkpoints.prefix(group, reverse=True)
            # Behind all that begins so: the last zero of the group, raised.
            lower = group[:-1] + b"\1"

    def _tuple(self, moment: _gabion.Snapshot, key: bytes, record: bytes) -> CheckpointTuple:
        thread, namespace, checkpoint_id = _parts(key)
        packed, metadata, parent, _ = _unpack(record)
        checkpoint = self._load(packed)
        versions = checkpoint["channel_versions"]
        names = list(versions)
        keys = [_key(thread, namespace, name, str(versions[name])) for name in names]
        found = zip(names, moment.of(self._channels).multi_get(keys))
        checkpoint["channel_values"] = {name: self._load(value) for name, value in found if value}
        writes = []
        for write, value in moment.of(self._writes).prefix(key):
            channel, data = _unpack(value)
            _, task, _ = _parts(write[len(key) :])
            writes.append((task, channel.decode(), self._load(data)))
        return CheckpointTuple(
            config=_config(thread, namespace, checkpoint_id),
            checkpoint=checkpoint,
            metadata=self._load(metadata),
            parent_config=_config(thread, namespace, parent.decode()) if parent else None,
            pending_writes=writes,
        )

    def delete_thread(self, thread_id: str) -> None:
        start = _key(thread_id)
        with self._store.batch() as batch:
            for keyspace in (self._checkpoints, self._channels, self._writes):
                batch.delete_range(start, start[:-1] + b"\1", keyspace)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = {str(run) for run in run_ids}
        with self._lock, self._store.snapshot() as moment, self._store.batch() as batch:
            gone = [
                key
                for key, record in moment.of(self._checkpoints).items()
                if _unpack(record)[3].decode() in runs
            ]
            self._drop(moment, batch, gone)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = _key(source_thread_id), _key(target_thread_id)
        with self._store.snapshot() as moment, self._store.batch() as batch:
            for keyspace in (self._checkpoints, self._channels, self._writes):
                for key, value in moment.of(keyspace).prefix(source):
                    batch.put(target + key[len(source) :], value, keyspace)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all checkpoints of threads, or all but the newest of each namespace.

        What a newest checkpoint's channels are rebuilt from is kept as well: its ancestors, up to
        those that have a value of each of its channels.
        """
        if strategy == "delete":
            for thread in thread_ids:
                self.delete_thread(thread)
            return
        if strategy != "keep_latest":
            raise ValueError(f'the strategy {strategy!r} is neither "keep_latest" nor "delete"')
        with self._lock, self._store.snapshot() as moment, self._store.batch() as batch:
            for thread in thread_ids:
                self._prune(moment, batch, thread)

    def _prune(self, moment: _gabion.Snapshot, batch: _gabion.Batch, thread: str) -> None:
        checkpoints = moment.of(self._checkpoints)
        by_namespace: dict[str, dict[str, bytes]] = {}
        for key, record in checkpoints.prefix(_key(thread)):
            _, namespace, checkpoint_id = _parts(key)
            by_namespace.setdefault(namespace, {})[checkpoint_id] = record
        for namespace, records in by_namespace.items():
            newest = max(records)
            kept = {newest}
            missing = self._without_value(moment, thread, namespace, records[newest])
            at = _unpack(records[newest])[2].decode()
            while missing and at in records:
                kept.add(at)
                missing &= self._without_value(moment, thread, namespace, records[at])
                at = _unpack(records[at])[2].decode()
            gone = [_key(thread, namespace, own) for own in records if own not in kept]
            self._drop(moment, batch, gone)

    def _without_value(
        self, moment: _gabion.Snapshot, thread: str, namespace: str, record: bytes
    ) -> set[str]:
        """Channels of a checkpoint that have a version, but no value of their own."""
        versions = self._load(_unpack(record)[0])["channel_versions"]
        channels = moment.of(self._channels)
        names = list(versions)
        keys = [_key(thread, namespace, name, str(versions[name])) for name in names]
        return {name for name, value in zip(names, channels.multi_get(keys)) if not value}

    def _drop(
        self, moment: _gabion.Snapshot, batch: _gabion.Batch, gone: Sequence[bytes]
    ) -> None:
        """Deletes checkpoints with their writes, and channels that nobody has any more."""
        lost = set(gone)
        checkpoints = moment.of(self._checkpoints)
        for group in {_key(*_parts(key)[:2]) for key in gone}:
            used = set()
            for key, record in checkpoints.prefix(group):
                if key not in lost:
                    versions = self._load(_unpack(record)[0])["channel_versions"]
                    used |= {group + _key(name, str(own)) for name, own in versions.items()}
            for channel in moment.of(self._channels).prefix(group, part="keys"):
                if channel not in used:
                    batch.delete(channel, self._channels)
        for key in gone:
            batch.delete(key, self._checkpoints)
            batch.delete_range(key, key[:-1] + b"\1", self._writes)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions that ascend as text, and differ between branches."""
        number = int(str(current).split(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"

    # The same, for those who wait.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint,
        }
    }
