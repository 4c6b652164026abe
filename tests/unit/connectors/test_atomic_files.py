"""Files that exist completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commitlake.connectors.atomic_files import open_atomic, open_atomic_sized, remove_folder_in_order, write_synced


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"old")
    with open_atomic(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["table.json"]


def test_a_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with open_atomic(tmp_path / "table.json") as file:
            file.write(b"half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert names(tmp_path) == []


def test_a_segment_has_its_size_at_once_and_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.with_suffix(".tmp").write_bytes(b"of a run that was killed, and longer")
    with open_atomic_sized(path, 16) as descriptor:
        os.pwrite(descriptor, b"x", 8)
        assert not path.exists()
    assert path.read_bytes() == bytes(8) + b"x" + bytes(7)
    assert names(tmp_path) == [path.name]


def test_a_file_left_by_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "made" / "state"
    path.parent.mkdir()
    path.with_name("state.tmp").write_bytes(b"half of a longer text")
    write_synced(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert names(path.parent) == ["state"]


def test_the_file_that_names_a_run_is_removed_last(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "parts").mkdir(parents=True)
    (run / "parts" / "0").write_bytes(b"")
    (run / "plan").write_bytes(b"")
    remove_folder_in_order(run, "plan")
    assert names(tmp_path) == []
