"""A lake made by archive runs without Spark: tasks run in this process, and commits are real."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import ArchiveCommit, RunCounts
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.pipelines.archive.store_config import write_config_changes
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from tests.support.logs import BROKER_HOST, new_message, write_store

SEGMENT = 4 << 20
DAY_MS = 86_400_000
MIDNIGHT_MS = 1_700_006_400_000
FIRST_DATE = "2023-11-15"
PARTITION = 32 << 20


def shop_messages(count: int, topics: int = 5, days: int = 1, seed: int = 0) -> list[NewMessage]:
    """Return messages of several topics, spread over some days; store times equal born times."""
    return [
        new_message(
            number,
            topic=f"topic-{(number * 7 + seed) % topics:02}",
            body=hashlib.sha256(f"{seed} {number}".encode()).digest(),
            born_timestamp=MIDNIGHT_MS + number * days * DAY_MS // count,
        )
        for number in range(count)
    ]


@dataclass
class GrowingLake:
    """A growing store and its lake.

    Attributes:
        folder: folder of store and lake.
        log: bytes written to the store's only segment.
        count: number of its messages.
    """

    folder: Path
    log: bytearray = field(default_factory=bytearray)
    count: int = 0
    _queues: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def store(self) -> Path:
        """Return the store's folder."""
        return self.folder / "broker-a"

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return Lake(str(self.folder / "lake"))

    def copy_to(self, folder: Path) -> GrowingLake:
        """Copy the store and the lake into a folder, which may already exist."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, symlinks=True)
        return GrowingLake(folder, bytearray(self.log), self.count, Counter(self._queues))

    def write(self, messages: Iterable[NewMessage], stored_after_ms: Callable[[NewMessage], int] = lambda _: 0) -> None:
        """Append messages to the store.

        Args:
            messages: the messages.
            stored_after_ms: function that returns the time from a message's birth to its storage, ms.
        """
        for message in messages:
            queue = (message.topic, message.queue_id)
            self.log += serialize_message(
                message,
                queue_offset=self._queues[queue],
                physical_offset=len(self.log),
                store_timestamp=message.born_timestamp + stored_after_ms(message),
                store_host=BROKER_HOST,
            )
            self._queues[queue] += 1
            self.count += 1
        write_store(self.store, [(0, bytes(self.log).ljust(SEGMENT, b"\0"))])

    def recreate_topics(self) -> None:
        """Number the messages of each queue from 0 again, as after all topics were deleted and created again."""
        self._queues.clear()

    def queue_length(self, topic: str, queue_id: int = 0) -> int:
        """Return the number of messages in a queue."""
        return self._queues[topic, queue_id]

    def configure(self, queues: int) -> None:
        """Set the number of queues of the store's topics, which the next run archives."""
        path = self.store / "config" / "topics.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        topics = {"topic-00": {"topicName": "topic-00", "readQueueNums": queues, "writeQueueNums": queues}}
        path.write_text(json.dumps({"topicConfigTable": topics}))

    def archive(self, *, finish: bool = True) -> ArchiveCommit:
        """Run the archive; with `finish=False`, the run ends like one that was killed after its commit."""
        return archive_store(self.store, self.lake, finish=finish)


def prepared_lake(folder: Path, prepare: Callable[..., object], *arguments: Hashable) -> GrowingLake:
    """Return a store and a lake made by a function; each process calls the function once, and copies the result.

    Args:
        folder: folder for the copies; it may already exist.
        prepare: a module-level function that receives a lake, writes its store, and archives it.
        arguments: further arguments of the function.
    """
    return _prepared(prepare, *arguments)[0].copy_to(folder)


@functools.cache
def _prepared(
    prepare: Callable[..., object], *arguments: Hashable
) -> tuple[GrowingLake, tempfile.TemporaryDirectory[str]]:
    """Return the lake that is copied, and its folder, which exists as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="commitlake-lake-")
    growing = GrowingLake(Path(folder.name))
    prepare(growing, *arguments)
    return growing, folder


def archive_store(store: Path, lake: Lake, broker: str | None = None, *, finish: bool = True) -> ArchiveCommit:
    """Archive the new messages of a store in this process.

    Args:
        store: its folder.
        lake: the lake.
        broker: the store's name; by default that of its folder.
        finish: also update the tables that are derived from `messages`.
    """
    work = find_archive_work(str(store), broker, lake)
    open_messages_for_append(lake)
    splits = work.splits(PARTITION)
    tasks = ArchiveTasks(splits, lake, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, splits, inline_limit_bytes=1 << 20))  # no caller collects staged profiles
    written = _written(work.commit, manifest)
    config = write_config_changes(lake, work.stores, work.commit.run_id, datetime.datetime.now(datetime.UTC))
    if config is not None:
        written = replace(written, files={**written.files, "store_config": (config,)})
    files = _files(manifest).pop("messages", [])
    commit = commit_run(lake, files, written, work.previous_progress)
    if finish:
        finish_runs(lake, commit.run_id, "1")
    return commit


def _files(manifest: Iterable[ManifestRow]) -> dict[str, list[DataFile]]:
    files: dict[str, list[DataFile]] = defaultdict(list)
    for row in manifest:
        if row.path:
            files[row.table].append(row.data_file)
    return files


def _written(commit: ArchiveCommit, manifest: Iterable[ManifestRow]) -> ArchiveCommit:
    files = _files(manifest)
    counts = RunCounts(
        datetime.datetime.now(datetime.UTC).isoformat(), sum(file.rows for file in files.pop("messages", [])), 0, 0
    )
    return commit.with_results(counts, files)


def rows_of(table_uri: str) -> list[dict[str, Any]]:
    """Return all rows of a table, sorted, independently of its files."""
    rows = DeltaTable(table_uri).to_pyarrow_table().to_pylist()
    return sorted(rows, key=repr)


def data_files(table_uri: str) -> list[str]:
    """Return the data files of the newest version."""
    return sorted(action["path"] for action in pa.table(DeltaTable(table_uri).get_add_actions()).to_pylist())
