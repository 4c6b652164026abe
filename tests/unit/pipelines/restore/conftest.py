"""Small stores in lakes, and stores restored from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import RestoreResult, restore_store
from tests.support.indexed_stores import OPTIONS
from tests.support.restored_stores import BROKER, Archive, Restore

SMALL = RequestedSettings(
    queue_file_size=OPTIONS.consume_queue_file_size_bytes,
    index_slots=OPTIONS.index_slots,
    index_entries=OPTIONS.index_entries,
    index_tags=True,
)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Archive new messages of a store, in this process, into a lake next to the others of the test."""

    def run(root: Path, times: int = 1, broker: str = BROKER, partition: int = 5000) -> Lake:
        lake = Lake(str(tmp_path / "lake"))
        work = find_archive_work(str(root), broker, lake)
        open_messages_for_append(lake)
        tasks = ArchiveTasks(work.splits(partition), lake, work.commit.run_id, "1")
        files = [
            row.data_file for _ in range(times) for row in tasks.run_task(0, tasks.parts) if row.table == "messages"
        ]
        commit_run(lake, files, work.commit, work.previous_progress)
        return lake

    return run


@pytest.fixture
def restore(tmp_path: Path) -> Restore:
    """Restore a store into a folder of the test."""

    def run(lake: Lake, out: Path | None = None, **changes: Any) -> RestoreResult:
        options: dict[str, Any] = {"selection": RestoreSelection(""), "settings": SMALL, **changes}
        return restore_store(lake, out or tmp_path / "out", **options)

    return run
