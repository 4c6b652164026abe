"""A lake and its packs in an object store, restored to a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.jobs.restore.command import main
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.errors import ExitCode
from tests.support.indexed_stores import write_indexed_store
from tests.support.s3_fixtures import bucket, s3_environment, s3_server

__all__ = ["bucket", "s3_environment", "s3_server"]  # fixtures
SIZES = ("--queue-file-size", "320", "--index-slots", "50", "--index-entries", "200")


@pytest.fixture
def lake(tmp_path: Path, bucket: str) -> Lake:
    """A lake of a small store."""
    lake = Lake(f"s3://{bucket}/lake")
    work = find_archive_work(str(write_indexed_store(tmp_path / "store")), "a", lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(work.splits(20_000), lake, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, tasks.parts))
    commit_run(
        lake,
        [row.data_file for row in manifest if row.table == "messages"],
        work.commit,
        work.previous_progress,
    )
    return lake


def segments(root: Path) -> list[bytes]:
    """Return a log's files."""
    return [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]


def test_restored_segments_equal_the_originals(lake: Lake, tmp_path: Path) -> None:
    assert main(["--lake", lake.root, "--out", str(tmp_path / "out"), *SIZES]) == ExitCode.OK
    assert segments(tmp_path / "out") == segments(tmp_path / "store")


def test_expired_bodies_are_left_out(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_pack_store(lake.packs)
    first = next(iter(store.list_packs()))
    store.delete([first.name])
    arguments = ["--lake", lake.root, "--out", str(tmp_path / "out"), *SIZES]
    assert main(arguments) == ExitCode.USAGE
    assert "--on-missing skip" in capsys.readouterr().err
    assert main([*arguments[:3], str(tmp_path / "other"), *SIZES, "--on-missing", "skip"]) == ExitCode.DAMAGE
    assert "because their bodies are missing" in capsys.readouterr().err
    assert segments(tmp_path / "other")[3:] == segments(tmp_path / "store")[3:]
