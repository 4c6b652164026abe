"""The history of the schemas of topics' tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.pipelines.topics.schema_history import (
    TABLE,
    read_topic_schema,
    read_topics_by_table,
    record_topic_schema,
)
from tests.support.erased_lakes import write_lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with two schemas of one table, and one of another."""
    lake = write_lake(tmp_path, runs=1).lake
    assert record(lake, "orders", "first") == 1
    assert record(lake, "orders", "second") == 2
    assert record(lake, "payments", "first") == 1
    return lake


def record(lake: Lake, table: str, text: str) -> int:
    return record_topic_schema(lake, table, table, text, {"id": f"{table}_id"}, "file").number


def test_schemas_are_numbered_and_kept(lake: Lake) -> None:
    newest, first = read_topic_schema(lake, "orders"), read_topic_schema(lake, "orders", 1)
    assert newest is not None
    assert first is not None
    assert (newest.number, newest.text, first.text, first.rename) == (2, "second", "first", {"id": "orders_id"})
    assert read_topic_schema(lake, "shipments") is None


def test_a_table_that_gets_another_topic_has_both_in_its_history(lake: Lake) -> None:
    assert read_topics_by_table(lake) == {"topics/orders": ["orders"], "topics/payments": ["payments"]}
    assert record_topic_schema(lake, "orders", "sales", "second", {"id": "orders_id"}, "file").number == 3
    assert read_topics_by_table(lake)["topics/orders"] == ["orders", "sales"]


def test_the_newest_schema_is_recorded_once(lake: Lake) -> None:
    assert record(lake, "orders", "second") == 2
    assert record(lake, "orders", "first") == 3


def test_numbers_continue_after_a_lost_log(lake: Lake) -> None:
    shutil.rmtree(Path(lake.uri(TABLE)) / "_delta_log")
    (Path(lake.uri(TABLE)) / "_delta_log").mkdir()
    plan = plan_repair(lake)
    assert plan.logs.keys() == {TABLE}
    assert repair_lake(lake, plan, "1") == []
    newest = read_topic_schema(lake, "orders")
    assert newest is not None
    assert (newest.number, newest.text) == (2, "second")
    assert record(lake, "orders", "third") == 3
    assert record(lake, "payments", "second") == 2
