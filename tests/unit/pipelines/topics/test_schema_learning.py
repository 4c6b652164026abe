"""Tests of schemas that are learned from documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commitlake.pipelines.topics.document_check import judge_body
from commitlake.pipelines.topics.json_schema import parse_json_schema
from commitlake.pipelines.topics.schema_learning import add_new_fields, learn_schema, sample_bodies
from tests.support.lakes import GrowingLake
from tests.support.message_stores import message


def types(*documents: str) -> dict[str, Any]:
    """Return the learned schemas of the fields, without their shares."""
    learned = learn_schema([document.encode() for document in documents]).to_json_schema()["properties"]
    return {name: {key: value for key, value in each.items() if key != "x-share"} for name, each in learned.items()}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2"], {"type": "integer"}),
        (["1", "2.5"], {"type": "number"}),
        (["1", "null"], {"type": ["integer", "null"]}),
        (['"a"', '"2026-11-20"'], {"type": "string"}),
        (['"2026-11-20"', '"2026-11-21"'], {"type": "string", "format": "date"}),
        (['"2026-11-20T14:00:00Z"'], {"type": "string", "format": "date-time"}),
        (['"2026-11-20T14:00:00"'], {"type": "string"}),
        (["true", "false"], {"type": "boolean"}),
        (["null"], {}),
        (["1", '"1"'], {}),
        (["12345678901234567890"], {}),
        (["1e400"], {}),
        (["[]"], {}),
        (["{}"], {}),
        (["[1, 2]", "[]"], {"type": "array", "items": {"type": "integer"}}),
        (["[1, null]"], {"type": "array", "items": {"type": ["integer", "null"]}}),
        (["[1]", "{}"], {}),
    ],
)
def test_types_of_values(values: list[str], expected: dict[str, Any]) -> None:
    assert types(*(f'{{"f": {value}}}' for value in values)) == {"f": expected}


def test_shares_and_nested_fields() -> None:
    learned = learn_schema(
        [b'{"a": 1, "b": {"c": "x"}}', b'{"a": null, "b": {}}', b'{"a": 2}', b'{"a": 2}', b"x", None]
    )
    assert (learned.documents, learned.others) == (4, 2)
    properties = learned.to_json_schema()["properties"]
    assert properties["a"] == {"type": ["integer", "null"], "x-share": 0.75}
    assert properties["b"]["x-share"] == 0.5
    assert properties["b"]["properties"]["c"] == {"type": "string", "x-share": 0.5}


def test_names_that_columns_cannot_have_are_left_out() -> None:
    assert list(types('{"a": 1, "A": 2, "b c": 3, "": 4}')) == ["a"]


def test_objects_whose_names_are_data_are_kept_as_text() -> None:
    names = {f"order-{number}": number for number in range(501)}
    assert types(json.dumps({"f": names})) == {"f": {}}


def test_the_sample_fits_its_schema() -> None:
    documents = [
        b'{"id": 1, "lines": [{"sku": "a", "n": 1}], "tags": {"x": 1}}',
        b'{"id": 2, "lines": [], "note": null, "poly": "1"}',
        b'{"id": 3, "lines": null, "note": "x", "poly": {"a": [1]}, "big": 1e400}',
    ]
    schema = parse_json_schema(json.dumps(learn_schema(documents).to_json_schema()), "learned")
    for document in documents:
        judged = judge_body(document, schema)
        assert (judged.misfit, judged.unknown) == (None, {})


def test_new_fields_are_added_and_others_kept() -> None:
    present = {
        "properties": {"a": {"type": "string"}, "o": {"properties": {"x": {}}}, "l": {"items": {"properties": {}}}}
    }
    learned = learn_schema([b'{"a": 1, "A": 1, "b": 2, "o": {"x": 1, "y": 2}, "l": [{"z": 1}]}']).to_json_schema()
    merged, added = add_new_fields(present, learned)
    assert added == ["b", "o.y", "l[].z"]
    assert merged["properties"]["a"] == {"type": "string"}
    assert merged["properties"]["o"]["properties"]["x"] == {}
    assert add_new_fields(merged, learned) == (merged, [])


def test_a_sample_has_messages_of_all_the_time(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(message(number, queue_id=number % 2, body=b"%d" % number) for number in range(200))
    growing.write([message(200, topic="others")])
    growing.archive()
    found = sorted(int(body or b"") for body in sample_bodies(growing.lake, "orders", 20))
    assert found == [number for number in range(200) if number // 2 % 10 == 0]
    assert len(list(sample_bodies(growing.lake, "orders", 1_000))) == 200
    assert list(sample_bodies(growing.lake, "none", 10)) == []
