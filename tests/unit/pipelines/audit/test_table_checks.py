"""The audit's checks of a lake's files and tables that do not need Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import RunCounts
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.committer import commit_run
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.jobs.audit import command as audit
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.table_checks import compare_archive_runs, find_damaged_table_files
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.profile import PROFILES
from tests.support.lakes import GrowingLake, data_files, prepared_lake, shop_messages
from tests.support.table_damages import damage


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs."""
    return prepared_lake(tmp_path, _archive_twice)


def _archive_twice(growing: GrowingLake) -> None:
    for seed in range(2):
        growing.write(shop_messages(20, seed=seed))
        growing.archive()
    follow_keys(growing.lake)


def data_file(growing: GrowingLake, table: str) -> Path:
    return min((growing.folder / "lake" / table).rglob("part-*.parquet"))


def flip_in_a_page(path: Path) -> None:
    """Change a bit of a column that the audit does not read."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = group.column(group.num_columns - 1)
    first = column.dictionary_page_offset or column.data_page_offset
    place = first + column.total_compressed_size - 2
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def run_audit(growing: GrowingLake, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = audit.main(["--lake", growing.lake.root, "--quiet", "--output", "json", *more])
    return code, json.loads(capsys.readouterr().out)["rows"]


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
def test_a_changed_page_is_found_by_a_deep_check(growing: GrowingLake, table: str) -> None:
    path = data_file(growing, table)
    flip_in_a_page(path)
    assert not find_damaged_table_files(growing.lake, is_deep=False)
    (finding,) = find_damaged_table_files(growing.lake, is_deep=True)
    assert finding.table == table
    assert path.name in finding.notes[0]
    assert "CRC" in finding.notes[0]


def test_every_data_file_has_page_checksums(growing: GrowingLake) -> None:
    maintain.main(["--lake", growing.lake.root, "--quiet"])  # merges, too
    for table in ("messages", "message_keys", "archive_runs"):
        uri = growing.lake.uri(table)
        for name in data_files(uri):
            flip_in_a_page(Path(uri) / name)
            with pytest.raises(OSError, match="CRC"):
                pq.ParquetFile(Path(uri) / name, page_checksum_verification=True).read()


def test_runs_with_a_missing_row_or_a_wrong_count_are_reported(growing: GrowingLake) -> None:
    assert compare_archive_runs(growing.lake, read_lake_state(growing.lake)) == []
    runs = DeltaTable(growing.lake.uri("archive_runs"))
    runs.delete("sequence = 1")
    runs.update({"messages": "7"}, predicate="sequence = 2")
    (finding,) = compare_archive_runs(growing.lake, read_lake_state(growing.lake))
    assert finding.notes == ["run 1: expected a row, found 0", "run 2: expected messages 20, found 7"]


def test_missing_rows_and_checksums_of_a_run_are_reported(growing: GrowingLake) -> None:
    work = find_archive_work(str(growing.store), None, growing.lake)
    rows = pa.Table.from_pylist(
        [{"broker": "broker-a", "messages": 1, "row_checksum": 7, "lake_checksum": 8, "run_id": "r"}] * 3,
        schema=arrow_schema(PROFILES),
    )
    file = write_plain_file(rows, growing.lake, "profiles", "part-r.zstd.parquet")
    counts = RunCounts("2026-11-20T00:00:00+00:00", 0, 0, 0)
    commit = replace(work.commit, run_id="r").with_results(counts, {"profiles": [file]})
    commit_run(growing.lake, [], commit, work.previous_progress)
    finish_runs(growing.lake, "r", "1")
    assert compare_archive_runs(growing.lake, read_lake_state(growing.lake)) == []
    profiles = DeltaTable(growing.lake.uri("profiles"))
    without = profiles.to_pyarrow_table().drop_columns(["row_checksum", "lake_checksum"])
    write_deltalake(profiles, without, mode="overwrite", schema_mode="overwrite")  # as an old lake has them
    for count, notes in (
        (3, [f"run 3: expected 3 values of {name}, found 0" for name in ("row_checksum", "lake_checksum")]),
        (2, ["run 3: expected 3 rows, found 2"]),
        (0, ["run 3: expected 3 rows, found 0"]),
    ):
        write_deltalake(profiles, without.slice(0, count), mode="overwrite")
        (finding,) = compare_archive_runs(growing.lake, read_lake_state(growing.lake))
        assert (finding.table, finding.notes) == ("profiles", notes)


def test_a_damaged_log_ends_the_audit_with_the_exit_code_of_damage(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "no table is damaged" in capsys.readouterr().err
