"""What an audit sees of a lake's files and tables, before Spark is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from connectors.message_keys.follow import follow_keys
from jobs import audit, maintain
from jobs.audit_moment import read_moment
from jobs.audit_tables import compare_runs, damaged_files
from jobs.command import ExitCode
from tests.unit.connectors.lake.test_log_check import damage
from tests.unit.connectors.maintenance.lakes import GrowingLake, data_files, shop_messages


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs."""
    growing = GrowingLake(tmp_path)
    for seed in range(2):
        growing.write(shop_messages(20, seed=seed))
        growing.archive()
    follow_keys(growing.lake)
    return growing


def data_file(growing: GrowingLake, table: str) -> Path:
    return min((growing.folder / "lake" / table).rglob("part-*.parquet"))


def flip_in_a_page(path: Path) -> None:
    """Change a bit of a column that nobody looks at."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = group.column(group.num_columns - 1)
    first = column.dictionary_page_offset or column.data_page_offset
    place = first + column.total_compressed_size - 2
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def run_audit(growing: GrowingLake, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = audit.main(["--lake", growing.lake.root, "--quiet", "--output", "json", *more])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("how", ["deleted", "empty", "cut", "zeroed"])
@pytest.mark.parametrize("table", ["messages", "archive_runs"])
def test_a_damaged_data_file_is_named(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], table: str, how: str
) -> None:
    path = data_file(growing, table)
    damage(path, how)
    code, (finding,) = run_audit(growing, capsys)
    assert code == ExitCode.DAMAGE
    assert (finding["table"], finding["count"]) == (table, 1)
    assert path.name in finding["notes"][0]


@pytest.mark.parametrize("table", ["messages", "message_keys", "archive_runs"])
def test_a_changed_page_is_seen_by_a_deep_look(growing: GrowingLake, table: str) -> None:
    path = data_file(growing, table)
    flip_in_a_page(path)
    assert not damaged_files(growing.lake, deep=False)
    (finding,) = damaged_files(growing.lake, deep=True)
    assert finding.table == table
    assert path.name in finding.notes[0]
    assert "CRC" in finding.notes[0]


def test_every_data_file_has_page_checksums(growing: GrowingLake) -> None:
    maintain.main(["--lake", growing.lake.root, "--quiet"])  # merges, too
    for table in ("messages", "message_keys", "archive_runs"):
        uri = getattr(growing.lake, table)
        for name in data_files(uri):
            flip_in_a_page(Path(uri) / name)
            with pytest.raises(OSError, match="CRC"):
                pq.ParquetFile(Path(uri) / name, page_checksum_verification=True).read()


def test_a_run_without_a_row_and_one_with_another_count_are_told(growing: GrowingLake) -> None:
    assert compare_runs(growing.lake, read_moment(growing.lake)) == []
    runs = DeltaTable(growing.lake.archive_runs)
    runs.delete("sequence = 1")
    runs.update({"messages": "7"}, predicate="sequence = 2")
    (finding,) = compare_runs(growing.lake, read_moment(growing.lake))
    assert finding.notes == ["run 1: expected a row, found 0", "run 2: expected messages 20, found 7"]


def test_a_damaged_log_is_an_exit_code_of_damage(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("messages", "archive_runs"):
        log = growing.folder / "lake" / table / "_delta_log"
        damage(max(log.glob("*.json")), "cut")
        assert audit.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.DAMAGE
        error = capsys.readouterr().err
        assert f"lake/{table}: entry" in error
        assert "maintain --lake LAKE --repair" in error
        assert maintain.main(["--lake", growing.lake.root, "--repair", "--dry-run", "--quiet"]) == ExitCode.DAMAGE
        assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
        assert "Run 'commitlake archive' now" in capsys.readouterr().err
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
    assert "all tables are whole" in capsys.readouterr().err
