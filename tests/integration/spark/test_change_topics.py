"""Change events of a database as rows, and the current rows that they give: those of the source, whatever arrives."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.topics import table_update
from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.table_update import TopicTableUpdater, TopicUpdate
from commitlake.pipelines.topics.topic_config import TopicConfig
from tests.support.change_events import CanalConnector, Connector, DebeziumConnector, OrdersSource
from tests.support.lakes import GrowingLake, rows_of
from tests.support.message_stores import message

SCHEMA = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "total": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
    },
}


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store and a lake."""
    return GrowingLake(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> TopicConfig:
    """A topic with the changes of a table."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return TopicConfig(
        "orders", "orders", tmp_path / "schema.json", rename={"name": "title"}, changes=CANAL,
        source_table="shop.orders", key=("id",), utc_offset="+08:00",
    )  # fmt: skip


def archive(growing: GrowingLake, bodies: list[bytes]) -> None:
    """Write change events to the store, and archive them."""
    growing.write(message(growing.count + n, "orders", body=body) for n, body in enumerate(bodies))
    growing.archive()


def update(spark: SparkSession, lake: Lake, config: TopicConfig) -> TopicUpdate:
    """Update the tables of a topic."""
    return TopicTableUpdater(spark, lake, config).update()


def current(lake: Lake, config: TopicConfig) -> list[tuple[object, ...]]:
    """Return the current rows, as the source has them."""
    rows = [row for row in rows_of(lake.uri(config.current_table)) if not row["_deleted"]]
    return sorted((row["id"], row["title"], row["total"], row["at"].isoformat()) for row in rows)


@pytest.mark.parametrize(
    "connector",
    [
        pytest.param(CanalConnector(), id="canal"),
        pytest.param(DebeziumConnector(has_schemas=True), id="debezium"),
        pytest.param(DebeziumConnector(has_schemas=False), id="debezium-without-schemas"),
    ],
)
@pytest.mark.parametrize(
    "changes", [2_000, pytest.param(200_000, marks=pytest.mark.long("the same with many more events"))]
)
def test_current_rows_are_those_of_the_source(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, changes: int, connector: Connector
) -> None:
    config = replace(config, changes=connector.format)
    source = OrdersSource(connector)
    events = source.change_rows(changes)
    count = len(events)
    disorder = random.Random(1)
    for part in range(3):
        chunk = events[part * count // 3 : (part + 1) * count // 3]
        # Repeated and late: some arrive again after all others, and each at a random place.
        chunk += disorder.sample(events[: (part + 1) * count // 3], count // 10)
        disorder.shuffle(chunk)
        archive(growing, chunk)
        assert update(spark, growing.lake, config).misfits == 0
    assert current(growing.lake, config) == source.rows()
    archive(growing, events[: count // 2])  # replayed
    update(spark, growing.lake, config)
    assert current(growing.lake, config) == source.rows()


def test_changes_are_rows(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    source = CanalConnector()
    rows = [{"id": "1", "name": "a", "total": "1.5", "at": "2026-11-20 14:00:00", "new": "x"}, {"id": "2", "name": "b"}]
    archive(
        growing,
        [
            source.event("INSERT", rows),
            source.event("UPDATE", [{"id": "3", "name": "b"}], [{"id": "2"}]),
            source.event("DELETE", rows[:1]),
            source.event("TRUNCATE", None, sql="TRUNCATE orders"),
            source.event("ALTER", None, sql="ALTER TABLE orders ADD x int"),
        ],
    )
    done = update(spark, growing.lake, config)
    assert (done.rows, done.misfits, done.with_unknown) == (6, 0, 2)
    found = sorted(rows_of(growing.lake.uri(config.lake_table)), key=lambda row: (row["_order"], row["_row"]))
    shown = [(row["_op"], row["_row"], row["_before_id"], row["id"], row["_before_title"]) for row in found]
    assert shown == [
        ("insert", 0, None, 1, None),
        ("insert", 1, None, 2, None),
        ("update", 0, 2, 3, "b"),
        ("delete", 0, 1, None, "a"),
        ("truncate", 0, None, None, None),
        ("ddl", 0, None, None, None),
    ]
    assert found[0]["at"].isoformat() == "2026-11-20T06:00:00+00:00"
    assert (found[0]["_unknown"], found[5]["_sql"]) == ([("new", '"x"')], "ALTER TABLE orders ADD x int")
    states = sorted(
        (row["id"], row["title"], row["_deleted"]) for row in rows_of(growing.lake.uri(config.current_table))
    )
    assert [(id_, deleted) for id_, _, deleted in states] == [(1, True), (2, True), (3, False)]


def test_a_run_that_is_killed_between_the_tables_is_completed(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = OrdersSource(CanalConnector())
    archive(growing, source.change_rows(20))
    with monkeypatch.context() as patch:
        patch.setattr(table_update, "update_current_table", _kill)
        with pytest.raises(KeyboardInterrupt):
            update(spark, growing.lake, config)
    assert not growing.lake.has_log(config.current_table)
    assert update(spark, growing.lake, config).rows == 0
    assert current(growing.lake, config) == source.rows()


def _kill(*_: object) -> None:
    raise KeyboardInterrupt
