"""A table with a damaged log is not opened: tests damage every file in every way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import open_delta_table, seal_log_after_commit
from commitlake.connectors.lake.delta_log import files as log_files_module
from commitlake.connectors.lake.delta_log.check import LogDamagedError, check_log, find_entry_fault, find_log_damage
from commitlake.connectors.lake.delta_log.files import LogFolder, entry_name
from commitlake.connectors.lake.delta_log.seals import Seal
from tests.support.table_damages import DAMAGES, damage

VERSIONS = 6  # a checkpoint at 3
CHECKPOINT = 3


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed table of some versions, and a checkpoint among them."""
    path = tmp_path_factory.mktemp("sealed") / "table"
    for version in range(VERSIONS):
        write_deltalake(path, pa.table({"number": [version]}), mode="append")
        seal_log_after_commit(str(path))
        if version == CHECKPOINT:
            DeltaTable(path).create_checkpoint()
            seal_log_after_commit(str(path))
    return path


@pytest.fixture
def copy(table: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(table, tmp_path / "copy"))


def numbers(path: Path) -> list[int]:
    return sorted(open_delta_table(str(path)).to_pyarrow_table().column("number").to_pylist())


def log_files(path: Path) -> Iterator[Path]:
    return (file for file in sorted((path / "_delta_log").rglob("*")) if file.is_file())


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_log_gives_all_rows_or_an_error_that_names_the_file(table: Path, tmp_path: Path, how: str) -> None:
    refused = set()
    for number, file in enumerate(log_files(table)):
        path = Path(shutil.copytree(table, tmp_path / str(number)))
        name = file.relative_to(table)
        damage(path / name, how)
        try:
            assert numbers(path) == list(range(VERSIONS)), name
        except LogDamagedError as error:
            refused.add(file.name)
            assert str(path) in str(error)
            assert "maintain" in str(error)
            if how != "deleted":
                assert file.name in str(error)
    needed = {entry_name(version) for version in range(CHECKPOINT + 1, VERSIONS)}
    assert refused >= {*needed, f"{CHECKPOINT:020d}.checkpoint.parquet"}
    assert not refused & {entry_name(version) for version in range(CHECKPOINT)}


def test_a_missing_newest_entry_is_found_by_its_seal(copy: Path) -> None:
    (copy / "_delta_log" / entry_name(VERSIONS - 1)).unlink()
    assert DeltaTable(copy).version() == VERSIONS - 2  # Delta itself sees an older table
    with pytest.raises(LogDamagedError, match=f"expected versions up to {VERSIONS - 1}, found no such file"):
        open_delta_table(str(copy))


@pytest.mark.parametrize("data", [b"", b"{}", bytes(100)])
def test_a_missing_newest_entry_is_found_by_its_damaged_seal(copy: Path, data: bytes) -> None:
    (copy / "_delta_log" / entry_name(VERSIONS - 1)).unlink()
    (copy / "_delta_log/_seals" / entry_name(VERSIONS - 1)).write_bytes(data)
    with pytest.raises(LogDamagedError, match=rf"entry {VERSIONS - 1} of the log"):
        open_delta_table(str(copy))


def test_a_seal_with_a_false_name_is_ignored(copy: Path) -> None:
    (copy / "_delta_log/_seals" / f"{'9' * 18:0>20}.json").write_bytes(b"")
    assert numbers(copy) == list(range(VERSIONS))


def test_a_commit_during_the_check_is_not_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = log_files_module._list_folder

    def commit_between(folder: Path) -> list[tuple[str, int, int]]:
        files = listed(folder)
        if len(commits) < 1:
            commits.append(folder.name)
            write_deltalake(copy, pa.table({"number": [VERSIONS]}), mode="append")
            seal_log_after_commit(str(copy))
        return files

    commits: list[str] = []
    monkeypatch.setattr(log_files_module, "_list_folder", commit_between)
    check_log(str(copy))
    assert commits == ["_seals"]


def test_a_checkpoint_made_after_the_listing_is_not_damage(copy: Path) -> None:
    folder = LogFolder(str(copy))
    before = folder.read_listing()
    DeltaTable(copy).create_checkpoint()
    assert folder.read_listing().checkpoint_version > before.checkpoint_version
    assert list(find_log_damage(folder, before)) == []


def test_a_pointer_to_a_missing_checkpoint_is_damage(copy: Path) -> None:
    DeltaTable(copy).create_checkpoint()
    (copy / "_delta_log" / f"{VERSIONS - 1:020}.checkpoint.parquet").unlink()
    (found,) = find_log_damage(LogFolder(str(copy)))
    assert "expected the version of an existing checkpoint" in found.reason


def test_a_table_of_another_program_is_opened_and_sealed_with_the_next_commit(copy: Path) -> None:
    shutil.rmtree(copy / "_delta_log" / "_seals")
    assert len(numbers(copy)) == VERSIONS
    write_deltalake(copy, pa.table({"number": [VERSIONS]}), mode="append")
    assert len(numbers(copy)) == VERSIONS + 1
    seal_log_after_commit(str(copy))
    (copy / "_delta_log" / entry_name(VERSIONS)).write_bytes(b"")
    with pytest.raises(LogDamagedError, match="found 0"):
        open_delta_table(str(copy))


def test_an_empty_entry_without_a_seal_is_damage(copy: Path) -> None:
    write_deltalake(copy, pa.table({"number": [VERSIONS]}), mode="append")
    (copy / "_delta_log" / entry_name(VERSIONS)).write_bytes(b"")
    for open_table in (open_delta_table, seal_log_after_commit):
        with pytest.raises(LogDamagedError, match="expected lines of JSON, found nothing"):
            open_table(str(copy))


def test_a_missing_table_is_still_not_found(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        open_delta_table(str(tmp_path / "nothing"))


def test_only_the_newest_seals_are_kept(table: Path) -> None:
    kept = sorted(path.name for path in (table / "_delta_log" / "_seals").iterdir())
    assert kept == [entry_name(VERSIONS - 2), entry_name(VERSIONS - 1)]


def test_a_log_cleaned_up_to_a_checkpoint_is_whole(copy: Path) -> None:
    for version in range(CHECKPOINT + 1):
        (copy / "_delta_log" / entry_name(version)).unlink()
    assert len(numbers(copy)) == VERSIONS


def test_a_seal_round_trips_and_a_damaged_one_is_not_read() -> None:
    written = Seal(7, 3, {"a": (1, "b")}).to_bytes()
    assert Seal.from_bytes(written) == Seal(7, 3, {"a": (1, "b")})
    for place in range(len(written) - 1):
        assert Seal.from_bytes(written[:place]) is None
        assert Seal.from_bytes(written[:place] + bytes([written[place] ^ 8]) + written[place + 1 :]) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1}\n{"b": 2}', ""),
        (b'{"a": 1}\n\n', ""),
        (b"", "found nothing"),
        (b"\n", "found 1 blank"),
        (b'{"a": 1}\n{"b', "line 2"),
        (b"[1]", "line 1"),
        (b"\xff", "line 1"),
    ],
)
def test_an_entry_is_lines_of_json(data: bytes, reason: str) -> None:
    assert reason in find_entry_fault(data)
    assert bool(reason) == bool(find_entry_fault(data))
