"""Check that the files of tasks are where a commit would name them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.archive import command as archive
from commitlake.pipelines.archive.task import ArchiveTasks, check_files_written
from tests.support.indexed_stores import write_indexed_store
from tests.support.lakes import rows_of

PACK = pack_name(None, "a", 0, 7, "0" * 16)
FILES = {"messages/part.parquet": 3, f"bodies/{PACK}": 7}


def check(folder: Path, **sizes: int) -> None:
    """Check a data file and a pack, written with these sizes."""
    rows = [
        ManifestRow("messages", "part.parquet", size=sizes.get("part", 3)),
        ManifestRow.from_task_results({PACK: sizes.get("pack", 7)}, {}, "", None),
    ]
    check_files_written(Lake(str(folder)), rows)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A data file of three bytes and a pack of seven, by name."""
    paths = {name: tmp_path / name for name in FILES}
    for name, path in paths.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(FILES[name]))
    return paths


@pytest.mark.usefixtures("files")
def test_files_that_are_there_are_accepted(tmp_path: Path) -> None:
    check(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_or_folder_is_named(tmp_path: Path, files: dict[str, Path], name: str) -> None:
    for remove in (files[name].unlink, files[name].parent.rmdir):
        remove()
        with pytest.raises(
            LakeError, match=rf"{name}: a task wrote {FILES[name]} bytes, but this process found no such file"
        ):
            check(tmp_path)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("kind", "found"), [("part", 3), ("pack", 7)])
def test_a_file_of_another_size_is_named(tmp_path: Path, kind: str, found: int) -> None:
    with pytest.raises(LakeError, match=f"a task wrote 9 bytes, but this process found {found} bytes"):
        check(tmp_path, **{kind: 9})


@pytest.mark.parametrize("lost", ["messages", "bodies"])
def test_nothing_is_committed_if_tasks_write_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    store, lake = write_indexed_store(tmp_path / "store", 40), tmp_path / "lake"
    arguments = ["--store", str(store), "--lake", str(lake), "--local", "--quiet"]
    run_all = ArchiveTasks.run_all

    def elsewhere(tasks: ArchiveTasks, *others: Any) -> Iterator[ManifestRow]:
        yield from run_all(tasks, *others)
        for path in (lake / lost).rglob("*"):
            if path.is_file() and "_delta_log" not in path.parts:
                path.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTasks, "run_all", elsewhere)
        assert archive.main(arguments) == 2
    assert "Choose a folder that all machines share" in capsys.readouterr().err
    assert archive.main(arguments) == 0
    assert len(rows_of(str(lake / "messages"))) == 40
