"""Lakes from which stores are restored, and the content of a restored store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import FoundRecord, walk_store
from commitlake.pipelines.restore.run import RestoreResult
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.scan import SpanKind

BROKER = "a"
Archive = Callable[..., Lake]
Restore = Callable[..., RestoreResult]


def segments(root: Path) -> dict[str, bytes]:
    """Return a log's files by their names."""
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def walked(root: Path, segment_bytes: int) -> list[FoundRecord]:
    """Return everything in a log, as read by the plain reader."""
    (store,) = find_stores(str(root), BROKER, formats=COMMITLOGS)
    return list(walk_store(store, segment_bytes))


def messages_of(root: Path, segment_bytes: int) -> dict[int, Message]:
    """Return the records of a log by offset, without fillers; any other bytes are an error."""
    found = walked(root, segment_bytes)
    assert [each.span for each in found if each.span.kind is SpanKind.FAULT] == []
    records = (each.message for each in found if each.message is not None)
    return {record.physical_offset: record for record in records if record.sys_flag & 0xC != 0xC}


def lake_rows(lake: Lake) -> list[dict[str, Any]]:
    """Return all rows of `messages` in the log's order, without the positions of their bodies."""
    paths = (Path(lake.uri("messages")) / path for path in DeltaTable(lake.uri("messages")).file_uris())
    rows = [row for path in paths for row in pq.ParquetFile(path).read().drop_columns(["body_ref"]).to_pylist()]
    return sorted(rows, key=lambda row: row["physical_offset"])


def stop_after(calls: int) -> Callable[[int], Callable[[int], None]]:
    """Return a callback that interrupts a run after a number of segments."""
    done: list[int] = []

    def begin(_: int) -> Callable[[int], None]:
        def advance(more: int) -> None:
            done.append(more)
            if len(done) == calls:
                raise StoppedError

        return advance

    return begin


class StoppedError(Exception):
    """The exception that interrupts a run."""


def packs_of(lake: Lake) -> Iterator[Path]:
    """Yield the packs of a lake, by name."""
    yield from sorted(Path(lake.bodies_root).rglob("*.zst"))
