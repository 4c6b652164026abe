"""Tests of the columns that the judge makes of a batch of bodies."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa

from commitlake.pipelines.topics.body_judgement import BodyJudge
from commitlake.pipelines.topics.changes.change_reader import ChangeReader
from commitlake.pipelines.topics.changes.debezium import DEBEZIUM
from commitlake.pipelines.topics.json_schema import parse_json_schema
from tests.support.change_events import DebeziumConnector

SCHEMA = parse_json_schema(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), "test")
NOTHING = {"document": None, "misfit": None, "unknown": None}


def judged(bodies: list[bytes | None], errors: list[str | None] | None = None) -> list[dict[str, object]]:
    """Judge a batch, as a task does that got the judge from another process."""
    judge = pickle.loads(pickle.dumps(BodyJudge(SCHEMA, ("n",), frozenset({"card"}))))
    columns = {
        "n": pa.array(range(len(bodies)), pa.int64()),
        "body": pa.array(bodies, pa.binary()),
        "body_error": pa.array(errors or [None] * len(bodies), pa.string()),
    }
    rows: list[dict[str, object]] = judge.judge_batch(pa.RecordBatch.from_pydict(columns)).to_pylist()
    assert [row.pop("n") for row in rows] == list(range(len(bodies)))
    return rows


def reasons(rows: list[dict[str, object]]) -> list[object]:
    """Return the reason of each misfit."""
    return [None if row["misfit"] is None else row["misfit"]["reason"] for row in rows]  # type: ignore[index]


def test_each_body_is_a_document_or_a_misfit() -> None:
    rows = judged([b'{"id":1}', b'{"id":"1"}', None, b'{"id":3,"card":1}', b'{"id":4,"x":[1]}'])
    assert [row["document"] for row in rows] == ['{"id":1}', None, None, '{"id":3}', '{"id":4}']
    assert reasons(rows) == [None, "wrong_type", "no_body", None, None]
    assert [row["unknown"] for row in rows] == [None, None, None, None, [("x", "[1]")]]


def test_a_body_that_is_no_text_does_not_change_the_others() -> None:
    rows = judged([b'{"id":1}', b"\xff", b'{"id":2}'])
    assert [row["document"] for row in rows] == ['{"id":1}', None, '{"id":2}']
    assert reasons(rows) == [None, "not_utf8", None]


def test_a_body_that_cannot_be_decompressed_says_why() -> None:
    (row,) = judged([None], ["expected zlib, found text"])
    misfit = {"reason": "body_unreadable", "field": "", "expected": "a body that can be decompressed"}
    assert row["misfit"] == {**misfit, "found": "expected zlib, found text"}


def test_batches_without_misfits_and_without_rows() -> None:
    assert judged([b'{"id":1}', b"{}"]) == [NOTHING | {"document": '{"id":1}'}, NOTHING | {"document": "{}"}]
    assert judged([]) == []


def test_changes_are_read_with_the_keys_of_their_messages() -> None:
    insert = DebeziumConnector(has_schemas=False).event("c", None, {"id": 1})
    reader = ChangeReader(DEBEZIUM, SCHEMA, "shop.orders", ("id",))
    columns = {
        "keys": pa.array([['{"id":1}'], ['{"no":1}'], None, []], pa.list_(pa.string())),
        "body": pa.array([insert, insert, insert, b""], pa.binary()),
        "body_error": pa.nulls(4, pa.string()),
    }
    judge = pickle.loads(pickle.dumps(BodyJudge(SCHEMA, ("keys",), changes=reader)))
    rows = judge.judge_batch(pa.RecordBatch.from_pydict(columns)).to_pylist()
    assert reasons(rows) == [None, "other_key", None, None]
    found = [[] if row["document"] is None else json.loads(row["document"])["changes"] for row in rows]
    assert [[change["_op"] for change in changes] for changes in found] == [["insert"], [], ["insert"], ["control"]]
