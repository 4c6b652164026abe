"""Check that the files of tasks are where a commit would name them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.jobs.archive import command as archive
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.written import check_written
from tests.support.indexed_stores import write_indexed_store
from tests.support.lakes import rows_of


def manifest(folder: Path, size: int = 3) -> list[ManifestRow]:
    """A data file of three bytes, and another result of its task."""
    (folder / "messages").mkdir()
    (folder / "messages" / "part.parquet").write_bytes(b"abc")
    return [ManifestRow("messages", "part.parquet", size=size), ManifestRow(pack_bytes=7)]


def test_files_that_are_there_are_accepted(tmp_path: Path) -> None:
    check_written(LakePaths(str(tmp_path)), manifest(tmp_path))


@pytest.mark.parametrize(("size", "found"), [(3, "no such file"), (4, "found 3 bytes")])
def test_a_missing_or_changed_file_is_named(tmp_path: Path, size: int, found: str) -> None:
    rows = manifest(tmp_path, size)
    if size == 3:
        (tmp_path / "messages" / "part.parquet").unlink()
    with pytest.raises(LakeError, match=rf"messages/part.parquet: a task wrote {size} bytes, .*{found}"):
        check_written(LakePaths(str(tmp_path)), rows)


def test_nothing_is_committed_if_tasks_write_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, lake = write_indexed_store(tmp_path / "store", 40), tmp_path / "lake"
    arguments = ["--store", str(store), "--lake", str(lake), "--local", "--quiet"]
    run_all = ArchiveTasks.run_all

    def elsewhere(tasks: ArchiveTasks, *others: Any) -> Iterator[ManifestRow]:
        for row in run_all(tasks, *others):
            if row.path:
                (lake / row.table / row.path).unlink()
            yield row

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTasks, "run_all", elsewhere)
        assert archive.main(arguments) == 2
    assert "Choose a folder that all machines share" in capsys.readouterr().err
    assert archive.main(arguments) == 0
    assert len(rows_of(str(lake / "messages"))) == 40
