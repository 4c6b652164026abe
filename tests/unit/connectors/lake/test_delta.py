"""A table is opened at its newest version, and a log that has changed otherwise since is noticed."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake import delta
from commitlake.connectors.lake.delta import open_delta_table, seal_log_after_commit
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.lake import Lake
from tests.support.opened_tables import opened

__all__ = ["opened"]  # a fixture
VERSIONS = 4


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of several versions, each with a number."""
    return write_table(tmp_path / "numbers", VERSIONS)


def write_table(path: Path, versions: int) -> Path:
    """Write a table with a number in each version."""
    for number in range(versions):
        append(path, number)
    return path


def append(path: Path, number: int) -> None:
    """Add a version with a number."""
    write_deltalake(path, pa.table({"number": [number]}), mode="append")
    seal_log_after_commit(str(path))


def numbers(path: Path) -> list[int]:
    """Return the numbers in a table, opened as jobs open it."""
    return sorted(open_delta_table(str(path)).to_pyarrow_table().column("number").to_pylist())


def test_newer_versions_are_seen(table: Path) -> None:
    for number in range(VERSIONS, VERSIONS + 3):
        append(table, number)
        assert numbers(table) == list(range(number + 1))


@pytest.mark.parametrize("versions", [2, VERSIONS, VERSIONS + 3])
def test_another_table_in_the_same_place_is_opened_anew(table: Path, versions: int) -> None:
    assert numbers(table) == list(range(VERSIONS))
    shutil.rmtree(table)
    (table.parent / "_newest" / f"{table.name}.json").unlink()
    for number in range(versions):
        write_deltalake(table, pa.table({"number": [number + 100]}), mode="append")
    assert numbers(table) == [number + 100 for number in range(versions)]


def test_a_deleted_table_is_missing(table: Path) -> None:
    numbers(table)
    shutil.rmtree(table)
    with pytest.raises(LogDamagedError, match="found no log at all"):
        open_delta_table(str(table))
    (table.parent / "_newest" / f"{table.name}.json").unlink()
    with pytest.raises(TableNotFoundError):
        open_delta_table(str(table))


@pytest.mark.parametrize("version", range(VERSIONS))
def test_a_damaged_entry_is_found_although_the_table_was_opened_before(table: Path, version: int) -> None:
    numbers(table)
    entry = table / "_delta_log" / f"{version:020d}.json"
    whole = entry.read_bytes()
    entry.write_bytes(b"")
    with pytest.raises(LogDamagedError, match=f"entry {version} of the log"):
        open_delta_table(str(table))
    entry.write_bytes(whole)
    assert numbers(table) == list(range(VERSIONS))


def test_a_pinned_lake_opens_a_table_once_and_stays_at_its_version(table: Path, opened: list[str]) -> None:
    lake = Lake(str(table.parent))
    pinned = lake.pin_versions()
    assert pinned.table("numbers").version() == VERSIONS - 1
    append(table, VERSIONS)
    opened.clear()
    assert pinned.table("numbers") is pinned.find("numbers")
    assert pinned.table("numbers").version() == VERSIONS - 1
    assert opened == []
    assert lake.table("numbers").version() == lake.pin_versions().table("numbers").version() == VERSIONS


def test_a_pinned_lake_opens_a_table_again_at_its_version_when_its_credentials_are_renewed(
    table: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = Lake(str(table.parent)).pin_versions()
    pinned.table("numbers")
    append(table, VERSIONS)
    opened.clear()
    renewed = {"aws_session_token": "second"}
    monkeypatch.setattr(delta, "storage_options", lambda *_: renewed)
    assert pinned.table("numbers").version() == pinned.table("numbers").version() == VERSIONS - 1
    assert opened == ["numbers"]


def test_a_pinned_lake_looks_again_for_a_table_that_it_did_not_have(tmp_path: Path) -> None:
    pinned = Lake(str(tmp_path)).pin_versions()
    assert pinned.find("numbers") is None
    write_table(tmp_path / "numbers", 1)
    assert pinned.table("numbers").version() == 0


def test_another_process_opens_the_tables_of_a_pinned_lake_at_the_same_versions(table: Path) -> None:
    pinned = Lake(str(table.parent)).pin_versions()
    pinned.table("numbers")
    append(table, VERSIONS)
    sent = pickle.loads(pickle.dumps(pinned))
    assert sent == pinned
    assert sent.table("numbers").version() == VERSIONS - 1
    assert pickle.loads(pickle.dumps(sent)).table("numbers").version() == VERSIONS - 1


def test_a_table_is_opened_at_an_earlier_version_although_its_log_is_damaged_since(table: Path) -> None:
    lake = Lake(str(table.parent))
    (table / "_delta_log" / f"{VERSIONS - 1:020d}.json").write_bytes(b"")
    with pytest.raises(LogDamagedError):
        lake.table("numbers")
    assert lake.table_at("numbers", 1).to_pyarrow_table().num_rows == 2
