"""JSON of Delta logs that anybody may have written."""

from __future__ import annotations

import json

import pytest

from commitlake.connectors.lake.delta_log.entries import (
    find_action_fault,
    find_outside_path,
    parse_json,
    parse_row_count,
)

HUGE = "9" * 5000


@pytest.mark.parametrize("text", ["", "{", HUGE, "[" * 100_000, b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the messages are Python's)
        parse_json(text)


@pytest.mark.parametrize(
    ("path", "is_outside"),
    [
        ("part-0.parquet", False),
        ("store_date=2026-11-20/part..0.parquet", False),
        ("../messages2/part-0.parquet", True),
        ("a/%2e%2E/b.parquet", True),
        ("/etc/passwd", True),
        ("s3://bucket/part-0.parquet", True),
        ("file:/etc/passwd", True),
    ],
)
@pytest.mark.parametrize("kind", ["add", "remove", "cdc"])
def test_paths_that_lead_out_of_the_table_are_found(kind: str, path: str, is_outside: bool) -> None:
    action = {kind: {"path": path}}
    assert (find_outside_path(action) == path) is is_outside
    assert bool(find_action_fault(action)) is is_outside


@pytest.mark.parametrize(
    ("stats", "rows"), [(None, None), ("", None), ("{}", None), ('{"numRecords":7}', 7), ('{"numRecords":null}', None)]
)
def test_statistics_have_a_number_of_rows(stats: str | None, rows: int | None) -> None:
    assert parse_row_count(stats) == rows


@pytest.mark.parametrize(
    "stats",
    ["[]", "7", "{", 7, f'{{"numRecords":{HUGE}}}', '{"numRecords":-1}', '{"numRecords":1e400}', '{"numRecords":"7"}',
     f'{{"numRecords":{1 << 63}}}', f'{{"minValues":{{"a":{HUGE}}}}}'],
)  # fmt: skip
def test_other_statistics_are_damage(stats: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the messages are Python's)
        parse_row_count(stats)
    assert "statistics of 'part-0.parquet'" in find_action_fault({"add": {"path": "part-0.parquet", "stats": stats}})


@pytest.mark.parametrize("action", [[], 7, {"add": 7}, {"remove": {}}, {"add": {"path": 7}}])
def test_what_is_no_action_is_damage(action: object) -> None:
    assert find_action_fault(action)


def test_actions_of_other_kinds_are_not_judged() -> None:
    assert not find_action_fault(json.loads('{"commitInfo": {"path": "/"}, "protocol": {}}'))
