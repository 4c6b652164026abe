"""Tests that only the owner and its group can read files with messages, or fewer users under a stricter umask."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.query import command as query
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.safe_store_files import restricted_umask
from tests.support.indexed_stores import OPTIONS, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.lakes import GrowingLake, shop_messages

LOCAL = ("--local", "--threads", "1", "--quiet")
SIZES = (
    "--queue-file-size", str(OPTIONS.consume_queue_file_size_bytes),
    "--index-slots", str(OPTIONS.index_slots), "--index-entries", str(OPTIONS.index_entries),
)  # fmt: skip
STRICTER = pytest.mark.long("the usual umask, under which a job must restrict modes itself, is tried each time")


@pytest.fixture(
    params=[
        pytest.param((0o022, 0o640, 0o750), id="022"),
        pytest.param((0o077, 0o600, 0o700), id="077", marks=STRICTER),
    ]
)
def modes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The modes that files and folders must have, under one umask."""
    umask, file_mode, folder_mode = request.param
    before = os.umask(umask)
    yield file_mode, folder_mode
    os.umask(before)


def check(root: Path, modes: tuple[int, int]) -> None:
    """Check the modes of a folder and all its contents."""
    found = {path: path.lstat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
    assert len(found) > 5
    wrong = {
        str(path.relative_to(root)): oct(mode) for path, mode in found.items() if mode != modes[int(path.is_dir())]
    }
    assert not wrong


@pytest.mark.parametrize("write", [write_indexed_store, write_jmq_store])
def test_store_of_broker_lite_has_restricted_modes(
    tmp_path: Path, modes: tuple[int, int], write: Callable[..., Path]
) -> None:
    check(write(tmp_path / "store", 60), modes)


def test_rebuilt_store_has_restricted_modes(tmp_path: Path, modes: tuple[int, int]) -> None:
    store = write_indexed_store(tmp_path / "a" / "store", 60)
    assert rebuild.main([str(store), "--out", str(tmp_path / "out"), *LOCAL]) == ExitCode.OK
    check(tmp_path / "out", modes)
    assert rebuild.main([str(store), "--out", str(tmp_path / "clean"), "--salvage", *LOCAL]) == ExitCode.OK
    check(tmp_path / "clean", modes)
    assert rebuild.main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    check(store, modes)
    jmq = write_jmq_store(tmp_path / "jmq", 60)
    shutil.rmtree(jmq / "queue" / "topic-1")
    assert rebuild.main([str(jmq), "--in-place", *LOCAL]) == ExitCode.OK
    check(jmq, modes)


def test_lake_and_files_made_from_it_have_restricted_modes(tmp_path: Path, modes: tuple[int, int]) -> None:
    store = write_indexed_store(tmp_path / "a" / "store", 60)
    lake = Lake(str(tmp_path / "lake"))
    with restricted_umask():  # as a job does it
        work = find_archive_work(str(store), None, lake)
        open_messages_for_append(lake)
        tasks = ArchiveTasks(work.splits(5000), lake, work.commit.run_id, "1")
        manifest = list(tasks.run_task(0, tasks.parts))
        files = [row.data_file for row in manifest if row.path and row.table == "messages"]
        commit_run(lake, files, work.commit, work.previous_progress)
    check(tmp_path / "lake", modes)
    assert restore.main(["--lake", lake.root, "--out", str(tmp_path / "out"), *SIZES]) == ExitCode.OK
    check(tmp_path / "out", modes)
    page, body = tmp_path / "page.html", tmp_path / "body"
    verify.main([str(store), "--local", "--processes", "1", "--html", str(page)])
    query.main(["--lake", lake.root, "--key", "order-3", "--body-out", str(body)])
    assert {page.stat().st_mode & 0o777, body.stat().st_mode & 0o777} == {modes[0]}


def test_maintained_lake_has_restricted_modes(tmp_path: Path, modes: tuple[int, int]) -> None:
    growing = GrowingLake(tmp_path)
    with restricted_umask():
        for seed in range(2):
            growing.write(shop_messages(20, days=2, seed=seed))
            growing.archive()
    assert maintain.main(["--lake", growing.lake.root]) == ExitCode.OK
    check(Path(growing.lake.root), modes)


def test_lake_made_without_a_job_has_restricted_modes(tmp_path: Path, modes: tuple[int, int]) -> None:
    lake = Lake(str(tmp_path / "lake"))
    open_messages_for_append(lake)
    assert (tmp_path / "lake").stat().st_mode & 0o777 == Path(lake.uri("messages")).stat().st_mode & 0o777 == modes[1]


def test_umask_is_restored_when_a_job_has_ended(tmp_path: Path, modes: tuple[int, int]) -> None:
    before = os.umask(0)
    os.umask(before)
    with restricted_umask() as umask:
        assert umask == before | 0o027
    assert os.umask(before) == before
