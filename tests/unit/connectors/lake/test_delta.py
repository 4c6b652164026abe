"""Tests of tables that are kept for the next time they are opened."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake import delta
from commitlake.connectors.lake.delta import delta_table, seal
from commitlake.connectors.lake.delta_log.check import LogDamagedError

VERSIONS = 4


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Begin and end without kept tables."""
    delta.forget()
    yield
    delta.forget()


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
    seal(str(path))


def numbers(path: Path) -> list[int]:
    """Return the numbers in a table, opened as jobs open it."""
    return sorted(delta_table(str(path)).to_pyarrow_table().column("number").to_pylist())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were opened again instead of reused."""
    found: list[str] = []
    really = DeltaTable.__init__

    def count(self: DeltaTable, table_uri: str, *arguments: object, **options: object) -> None:
        found.append(str(table_uri))
        really(self, table_uri, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "__init__", count)
    return found


def test_a_table_is_opened_once_and_newer_versions_are_seen(table: Path, opened: list[str]) -> None:
    assert numbers(table) == list(range(VERSIONS))
    for number in range(VERSIONS, VERSIONS + 3):
        append(table, number)
        opened.clear()
        assert numbers(table) == list(range(number + 1))
        assert opened == []


def test_two_holders_have_tables_of_their_own(table: Path) -> None:
    first = delta_table(str(table))
    second = delta_table(str(table))
    append(table, VERSIONS)
    second.update_incremental()
    assert (first.version(), second.version()) == (VERSIONS - 1, VERSIONS)
    assert delta_table(str(table)).version() == VERSIONS


def test_an_older_version_that_a_holder_loaded_is_not_seen_by_the_next(table: Path) -> None:
    holder = delta_table(str(table))
    holder.load_as_version(1)
    assert holder.version() == 1
    del holder
    assert numbers(table) == list(range(VERSIONS))


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
        delta_table(str(table))
    (table.parent / "_newest" / f"{table.name}.json").unlink()
    with pytest.raises(TableNotFoundError):
        delta_table(str(table))


@pytest.mark.parametrize("version", range(VERSIONS))
def test_a_damaged_entry_is_found_although_the_table_was_open_before(table: Path, version: int) -> None:
    numbers(table)
    entry = table / "_delta_log" / f"{version:020d}.json"
    whole = entry.read_bytes()
    entry.write_bytes(b"")
    with pytest.raises(LogDamagedError, match=f"entry {version} of the log"):
        delta_table(str(table))
    entry.write_bytes(whole)
    assert numbers(table) == list(range(VERSIONS))


def test_an_entry_that_was_written_again_is_read_again(table: Path, opened: list[str]) -> None:
    shutil.rmtree(table / "_delta_log" / "_seals")
    assert numbers(table) == list(range(VERSIONS))
    entry = table / "_delta_log" / f"{1:020d}.json"
    kept = [line for line in entry.read_text().splitlines() if '"add"' not in line]
    entry.write_text("\n".join(kept) + "\n")
    opened.clear()
    assert numbers(table) == [number for number in range(VERSIONS) if number != 1]
    assert opened == [str(table)]


def test_a_version_that_was_replaced_while_the_table_was_open_is_read_again(table: Path) -> None:
    shutil.rmtree(table / "_delta_log" / "_seals")
    holder = delta_table(str(table))
    write_deltalake(table, pa.table({"number": [99]}), mode="append")
    holder.update_incremental()
    del holder
    (table / "_delta_log" / f"{VERSIONS:020d}.json").unlink()
    write_deltalake(table, pa.table({"number": [7]}), mode="append")
    assert numbers(table) == [*range(VERSIONS), 7]


def test_a_table_whose_old_entries_a_checkpoint_replaced_stays_open(table: Path, opened: list[str]) -> None:
    numbers(table)
    DeltaTable(table).create_checkpoint()
    for version in range(VERSIONS - 1):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    append(table, VERSIONS)
    opened.clear()
    assert numbers(table) == list(range(VERSIONS + 1))
    assert opened == []


def test_a_table_that_fell_behind_a_checkpoint_is_read_from_it(table: Path) -> None:
    numbers(table)
    for number in range(VERSIONS, VERSIONS + 6):
        append(table, number)
    DeltaTable(table).create_checkpoint()
    for version in range(VERSIONS + 4):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert numbers(table) == list(range(VERSIONS + 6))


def test_a_new_column_is_seen(table: Path) -> None:
    numbers(table)
    wider = pa.table({"number": [9], "word": ["nine"]})
    write_deltalake(table, wider, mode="append", schema_mode="merge")
    seal(str(table))
    found = delta_table(str(table))
    assert [field.name for field in found.schema().fields] == ["number", "word"]
    assert found.to_pyarrow_table().column("word").to_pylist().count("nine") == 1


def test_few_tables_are_kept(tmp_path: Path) -> None:
    paths = [write_table(tmp_path / f"t{number}", 1) for number in range(delta.MAX_KEPT + 3)]
    for path in paths:
        numbers(path)
    assert len(delta._kept) == delta.MAX_KEPT


def test_threads_that_open_and_append_at_once_see_all_versions(table: Path) -> None:
    failures: list[object] = []

    def read() -> None:
        newest = 0
        for _ in range(60):
            found = delta_table(str(table))
            if found.version() < newest or len(found.file_uris()) != found.version() + 1:
                failures.append((newest, found.version(), len(found.file_uris())))
            newest = found.version()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(VERSIONS, VERSIONS + 20):
        append(table, number)
    for thread in threads:
        thread.join()
    gc.collect()
    assert failures == []
    assert numbers(table) == list(range(VERSIONS + 20))
