"""Small stores in lakes, and what is restored of them beside what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from commitlake.connectors.formats.engine.records import Found, walk_store
from commitlake.connectors.formats.engine.stores import find_stores
from commitlake.connectors.lake.committer import commit_run, open_for_append
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work import find_work
from commitlake.pipelines.rebuild.settings import Wanted
from commitlake.pipelines.restore.rows import Chosen
from commitlake.pipelines.restore.run import Restored, restore_store
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.scan import SpanKind
from tests.indexed_stores import OPTIONS

BROKER = "a"
SMALL = Wanted(
    queue_file_size=OPTIONS.consume_queue_file_size_bytes,
    index_slots=OPTIONS.index_slots,
    index_entries=OPTIONS.index_entries,
    index_tags=True,
)
Archive = Callable[..., LakePaths]
Restore = Callable[..., Restored]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Archive what is new in a store, in this process, into a lake beside the others of the test."""

    def run(root: Path, times: int = 1, broker: str = BROKER, partition: int = 5000) -> LakePaths:
        lake = LakePaths(str(tmp_path / "lake"))
        work = find_work(str(root), broker, lake)
        open_for_append(lake.messages)
        tasks = ArchiveTasks(work.splits(partition), lake, PackLocation(lake.bodies), work.commit.run_id, "1")
        numbers = range(len(tasks.splits))
        files = [row.data_file for _ in range(times) for row in tasks.run(numbers) if row.table == "messages"]
        commit_run(lake.messages, files, work.commit, work.started_from)
        return lake

    return run


@pytest.fixture
def restore(tmp_path: Path) -> Restore:
    """Restore a store into a folder of the test."""

    def run(lake: LakePaths, out: Path | None = None, **changes: Any) -> Restored:
        options: dict[str, Any] = {"chosen": Chosen(""), "settings": SMALL, **changes}
        return restore_store(lake, lake.bodies, out or tmp_path / "out", **options)

    return run


def segments(root: Path) -> dict[str, bytes]:
    """A log's files by their names."""
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def walked(root: Path, segment_bytes: int) -> list[Found]:
    """Everything in a log, by the plain reader."""
    (store,) = find_stores(str(root), BROKER)
    return list(walk_store(store, segment_bytes))


def messages_of(root: Path, segment_bytes: int) -> dict[int, Message]:
    """The records of a log by their offsets, without fillers; anything that is no record is an error."""
    found = walked(root, segment_bytes)
    assert [each.span for each in found if each.span.kind is SpanKind.FAULT] == []
    records = (each.message for each in found if each.message is not None)
    return {record.physical_offset: record for record in records if record.sys_flag & 0xC != 0xC}


def lake_rows(lake: LakePaths) -> list[dict[str, Any]]:
    """All rows of `messages` in the log's order, but for where the bodies lie."""
    paths = (Path(lake.messages) / path for path in DeltaTable(lake.messages).file_uris())
    rows = [row for path in paths for row in pq.ParquetFile(path).read().drop_columns(["body_ref"]).to_pylist()]
    return sorted(rows, key=lambda row: row["physical_offset"])


def stop_after(calls: int) -> Callable[[int], Callable[[int], None]]:
    """What interrupts a run after some segments."""
    done: list[int] = []

    def begin(_: int) -> Callable[[int], None]:
        def advance(more: int) -> None:
            done.append(more)
            if len(done) == calls:
                raise StoppedError

        return advance

    return begin


class StoppedError(Exception):
    """What interrupts a run."""


def packs_of(lake: LakePaths) -> Iterator[Path]:
    """The packs of a lake, by their names."""
    yield from sorted(Path(lake.bodies).rglob("*.zst"))
