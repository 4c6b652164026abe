"""Messages counted by window as Arrow tables: as the archive's own profile has them, merged, and compared."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.pipelines.audit.counts_by_window import (
    DIFFERENCE,
    SCHEMA,
    count_messages_by_window,
    differing_windows,
    merge_windows,
)
from commitlake.pipelines.quality.profile import profile_rows
from commitlake.schemas.tables.profile import FIGURES
from tests.support.profiles import Row, message, messages, table_of
from tests.support.windows import windows_of

_LARGEST = (1 << 63) - 1


def in_order(windows: pa.Table) -> list[Row]:
    return sorted(windows.to_pylist(), key=repr)


def test_windows_equal_those_of_the_archives_profile() -> None:
    rows = [
        *messages(range(5)),
        *messages(range(700, 705), topic="payments", queue_id=None, keys=None),
        message(9, queue_offset=None, physical_offset=None, body_crc=None, store_timestamp=None),
        message(10, store_timestamp=None),
        message(11, broker="b", body_ref=None, properties=[]),
    ]
    expected = profile_rows(table_of(rows)).select(SCHEMA.names)
    assert in_order(windows_of(rows)) == in_order(expected)


def test_bad_ranges_are_not_counted() -> None:
    assert windows_of([message(1, size=None)]).num_rows == 0
    assert windows_of([]).num_rows == 0


def test_checksums_of_missing_columns_are_null() -> None:
    rows = table_of(messages(range(3))).drop_columns(["tags", "body_ref"]).combine_chunks()
    (window,) = count_messages_by_window(rows).to_pylist()
    assert (window["row_checksum"], window["lake_checksum"]) == (None, None)
    assert window["format_checksum"] is not None


def test_a_row_without_a_format_makes_its_windows_checksum_unknown() -> None:
    rows = [message(1), message(2, format=None), message(700)]
    assert [row["format_checksum"] is None for row in in_order(windows_of(rows))] == [True, False]


def test_merged_parts_equal_the_whole() -> None:
    rows = [message(number * 100, queue_id=number % 3) for number in range(30)]
    parts = [windows_of(rows[start : start + 7]) for start in range(0, 30, 7)]
    assert in_order(merge_windows(parts)) == in_order(windows_of(rows))
    assert merge_windows([]).num_rows == 0


def test_sums_wrap_and_an_unknown_part_makes_an_optional_checksum_unknown() -> None:
    window = windows_of([message()]).to_pylist()[0]
    parts = [{**window, "checksum": _LARGEST, "row_checksum": _LARGEST}, {**window, "checksum": 1, "row_checksum": 1}]
    (merged,) = merge_windows([pa.Table.from_pylist(parts, schema=SCHEMA)]).to_pylist()
    assert merged["checksum"] == merged["row_checksum"] == -_LARGEST - 1
    parts[1]["row_checksum"] = None
    (merged,) = merge_windows([pa.Table.from_pylist(parts, schema=SCHEMA)]).to_pylist()
    assert merged["row_checksum"] is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        ({"messages": 2}, "different"),
        ({"last_queue_offset": None}, "different"),
        ({"row_checksum": 7}, "different"),
        ({"row_checksum": None}, None),  # unknown to one side
    ],
)
def test_windows_are_compared_figure_by_figure(changes: Row, kind: str | None) -> None:
    (window,) = windows_of([message()]).to_pylist()
    expected, found = (pa.Table.from_pylist([row], schema=SCHEMA) for row in (window, {**window, **changes}))
    differing = differing_windows(expected, found, FIGURES)
    assert differing.column(DIFFERENCE).to_pylist() == ([kind] if kind else [])


def test_windows_of_only_one_side_are_reported_also_with_null_keys() -> None:
    expected = windows_of([message(1), message(2, queue_id=None, store_timestamp=None), message(3, topic=None)])
    found = windows_of([message(1), message(2, queue_id=None, store_timestamp=None), message(4, topic="new")])
    differing = differing_windows(expected, found, FIGURES).to_pylist()
    assert {(row["topic"], row[DIFFERENCE]) for row in differing} == {(None, "missing"), ("new", "unexpected")}
