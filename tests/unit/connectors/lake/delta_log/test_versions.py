"""Files that versions of a Delta table added and removed, from its log."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.delta_log.file_actions import one_value_per_file, read_file_actions
from commitlake.connectors.lake.delta_log.versions import (
    VersionGoneError,
    VersionsError,
    added_versions,
    files_in_time_range,
    files_of_table,
    table_filesystem,
)
from commitlake.schemas.errors import ExitCode
from tests.support.exit_codes import exits

_VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "sizeInBytes": 40,
    "cardinality": 6,
    "offset": 4,
}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Two versions: three rows of two dates, then one without a date."""
    uri = str(tmp_path / "a folder" / "messages")
    _append(uri, [("2026-11-20", 1), ("2026-11-20", 2), ("2026-11-21", 3)])
    _append(uri, [(None, 4)])
    return uri


def _append(uri: str, rows: list[tuple[str | None, int]]) -> None:
    dates, numbers = zip(*rows, strict=True)
    table = pa.table({"store_date": pa.array(dates, pa.string()).cast(pa.date32()), "number": list(numbers)})
    write_deltalake(uri, table, mode="append", partition_by=["store_date"])


def _numbers(uri: str, files: tuple[Any, ...]) -> list[int]:
    storage = table_filesystem(uri)
    found: list[int] = []
    for file in files:
        with storage.open_input_file(file.name) as source:
            found += pq.read_table(source).column("number").to_pylist()
    return sorted(found)


def test_versions_are_in_order_with_the_files_they_added(uri: str) -> None:
    first, second = added_versions(uri, -1)
    assert (first.version, second.version) == (0, 1)
    assert {(file.store_date, file.rows) for file in first.files} == {("2026-11-20", 2), ("2026-11-21", 1)}
    assert [(file.store_date, file.rows) for file in second.files] == [(None, 1)]
    assert (first.row_count, second.row_count) == (3, 1)
    assert (_numbers(uri, first.files), _numbers(uri, second.files)) == ([1, 2, 3], [4])


def test_paths_are_complete_and_sizes_are_those_of_the_files(uri: str) -> None:
    for version in added_versions(uri, -1):
        for file in version.files:
            assert Path(file.path).is_absolute()
            assert Path(file.path).stat().st_size == file.size
            assert file.path == f"{uri}/{file.name}"


def test_only_later_versions_are_returned(uri: str) -> None:
    assert [version.version for version in added_versions(uri, 0)] == [1]
    assert list(added_versions(uri, 1)) == []


def test_a_table_is_also_found_by_its_uri(uri: str) -> None:
    by_path = [version.files[0].name for version in added_versions(uri, -1)]
    by_uri = list(added_versions(Path(uri).as_uri(), -1))
    assert [version.files[0].name for version in by_uri] == by_path
    assert _numbers(Path(uri).as_uri(), by_uri[0].files) == [1, 2, 3]


def test_an_optimize_adds_no_files(uri: str) -> None:
    for number in range(5, 8):
        _append(uri, [("2026-11-20", number)])
    DeltaTable(uri).optimize.compact()
    *_, last = added_versions(uri, 1)
    assert (last.version, last.files, last.removed) == (5, (), ())
    last.check_append_only()


def test_a_delete_has_removed_files_and_their_rewritten_ones(uri: str) -> None:
    DeltaTable(uri).delete("number = 1")
    (version,) = added_versions(uri, 1)
    assert _numbers(uri, version.removed) == [1, 2]
    assert _numbers(uri, version.files) == [2]
    with pytest.raises(VersionsError, match="version 2 removes 1 file, expected that it only adds some"):
        version.check_append_only()


def test_a_snapshot_is_one_big_version(uri: str) -> None:
    DeltaTable(uri).delete("number = 1")
    snapshot = files_of_table(uri, DeltaTable(uri))
    assert (snapshot.version, snapshot.row_count, snapshot.removed) == (2, 3, ())
    assert _numbers(uri, snapshot.files) == [2, 3, 4]
    assert {file.store_date for file in snapshot.files} == {"2026-11-20", "2026-11-21", None}


def test_names_are_decoded_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "odd")
    table = pa.table({"place": ["a b/ä%25"], "number": [1]})
    write_deltalake(uri, table, partition_by=["place"])
    (version,) = added_versions(uri, -1)
    assert Path(version.files[0].path).exists()
    assert _numbers(uri, version.files) == _numbers(uri, files_of_table(uri, DeltaTable(uri)).files) == [1]


def test_a_version_cleaned_from_the_log_is_an_error(uri: str) -> None:
    DeltaTable(uri).create_checkpoint()
    (Path(uri) / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(
        VersionGoneError, match=r"version 0 of .* is no longer in its log: expected the file 0{20}\.json"
    ):
        list(added_versions(uri, -1))
    assert files_of_table(uri, DeltaTable(uri)).row_count == 4


def test_a_recreated_table_is_an_error_for_its_follower(uri: str) -> None:
    with pytest.raises(VersionGoneError, match="is 1, expected 7 or later: the table was created again"):
        added_versions(uri, 7)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"path": "store_date=2026-11-20/x.parquet", "deletionVector": _VECTOR}, "has a deletion vector"),
        ({"path": "s3://bucket/x.parquet"}, "outside its folder, as a shallow clone does"),
        ({"path": "file:/elsewhere/x.parquet"}, "outside its folder, as a shallow clone does"),
    ],
)
def test_a_file_that_cannot_be_read_by_itself_is_refused(uri: str, action: dict[str, Any], message: str) -> None:
    add = {
        "partitionValues": {"store_date": "2026-11-20"},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        **action,
    }
    commit = Path(uri) / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text() + "\n" + json.dumps({"add": add}))
    versions = added_versions(uri, 0)
    with pytest.raises(VersionsError, match=message, check=exits(ExitCode.DAMAGE)):
        next(versions)


@pytest.mark.parametrize("text", ["{", "[]", '{"add": {"dataChange": true}}', "\xff"])
def test_a_damaged_entry_is_an_error(uri: str, text: str) -> None:
    (Path(uri) / "_delta_log" / f"{1:020d}.json").write_text(text, encoding="latin-1")
    versions = added_versions(uri, 0, last_version=1)
    with pytest.raises(VersionsError, match=r"0001\.json is damaged: expected", check=exits(ExitCode.DAMAGE)):
        next(versions)


def test_the_number_of_rows_is_unknown_without_statistics(uri: str) -> None:
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    commit = Path(uri) / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text() + "\n" + json.dumps({"add": add}))
    (version,) = added_versions(uri, 0)
    assert [file.rows for file in version.files] == [1, None]
    assert version.row_count is None


def test_files_of_a_time_range_are_those_that_may_have_rows_in_it(tmp_path: Path) -> None:
    uri = str(tmp_path)
    start = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    hour = datetime.timedelta(hours=1)
    hours: list[list[int | None]] = [[0, 1], [2, 3], [None, None]]
    for number, times in enumerate(hours):
        moments = [None if time is None else start + time * hour for time in times]
        rows = pa.table({"minute": pa.array(moments, pa.timestamp("us", "UTC")), "run_id": [f"run-{number}"] * 2})
        write_deltalake(uri, rows, mode="append")
    table = DeltaTable(uri)

    def of(first: int, last: int) -> list[str]:
        files = files_in_time_range(uri, table, "minute", start + first * hour, start + last * hour)
        return sorted(pq.read_table(Path(uri, file.name)).column("run_id").to_pylist()[0][-1] for file in files)

    assert of(0, 2) == ["0", "2"]  # the log has no time for the last file
    assert of(1, 3) == ["0", "1", "2"]
    assert of(4, 9) == ["2"]
    runs = one_value_per_file(read_file_actions(table), "run_id")
    assert runs is not None
    assert sorted(runs.to_pylist()) == ["run-0", "run-1", "run-2"]
    write_deltalake(uri, pa.table({"minute": [start] * 2, "run_id": ["run-3", None]}), mode="append")
    assert one_value_per_file(read_file_actions(DeltaTable(uri)), "run_id") is None
