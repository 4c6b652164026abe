"""Change events of a database as rows, and the current rows that they give: those of the source, whatever arrives."""

from __future__ import annotations

import datetime
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.topic_tables_check import compare_topic_tables
from commitlake.pipelines.erasure.run import ErasureTarget, plan_erasure, run_erasure
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.topics import table_update
from commitlake.pipelines.topics.changes.canal import CANAL
from commitlake.pipelines.topics.changes.debezium import DEBEZIUM
from commitlake.pipelines.topics.table_summary import summarize_topic_table
from commitlake.pipelines.topics.table_update import TopicTableUpdater, TopicUpdate
from commitlake.pipelines.topics.topic_config import TopicConfig, TopicConfigError
from commitlake.schemas.errors import ExitCode
from tests.support.change_events import CanalConnector, Connector, DebeziumConnector, MaxwellConnector, OrdersSource
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
    first = growing.count
    growing.write(message(first + n, "orders", body=body) for n, body in enumerate(bodies))
    growing.archive()


def update(spark: SparkSession, lake: Lake, config: TopicConfig) -> TopicUpdate:
    """Update the tables of a topic."""
    return TopicTableUpdater(spark, lake, config).update()


def current(lake: Lake, config: TopicConfig) -> list[tuple[object, ...]]:
    """Return the current rows, as the source has them."""
    rows = [row for row in rows_of(lake.uri(config.current_table)) if not row["_deleted"]]
    return sorted((row["id"], row["title"], row["total"], row["at"].isoformat()) for row in rows)


_LONG = pytest.mark.long("the same with other settings of the connector, or many more events")


@pytest.mark.parametrize(
    ("changes", "connector", "parts"),
    [
        pytest.param(2_000, CanalConnector(), 3, id="canal"),
        pytest.param(1_000, DebeziumConnector(has_schemas=True), 2, id="debezium"),
        pytest.param(1_000, MaxwellConnector(has_positions=True), 2, id="maxwell"),
        pytest.param(2_000, DebeziumConnector(has_schemas=False), 3, id="debezium-without-schemas", marks=_LONG),
        pytest.param(2_000, MaxwellConnector(has_positions=False), 3, id="maxwell-without-positions", marks=_LONG),
        pytest.param(200_000, CanalConnector(), 3, id="canal-200000", marks=_LONG),
        pytest.param(200_000, DebeziumConnector(has_schemas=True), 3, id="debezium-200000", marks=_LONG),
        pytest.param(200_000, MaxwellConnector(has_positions=True), 3, id="maxwell-200000", marks=_LONG),
    ],
)
def test_current_rows_are_those_of_the_source(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, changes: int, connector: Connector, parts: int
) -> None:
    config = replace(config, changes=connector.format)
    source = OrdersSource(connector)
    events = source.change_rows(changes)
    count = len(events)
    disorder = random.Random(1)
    for part in range(parts):
        chunk = events[part * count // parts : (part + 1) * count // parts]
        # Repeated and late: some arrive again after all others, and each at a random place.
        chunk += disorder.sample(events[: (part + 1) * count // parts], count // 10)
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


def test_key_that_the_events_say(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    config = replace(config, key=(), changes=DEBEZIUM)
    connector = DebeziumConnector(has_schemas=True)
    first, second = (connector.publish(None, (n, "a", 1.5, "2026-11-20 14:00:00"))[0] for n in (1, 2))
    growing.write([message(0, "orders", body=first, properties=())])
    growing.archive()
    update(spark, growing.lake, config)
    assert not growing.lake.has_log(config.current_table)  # no event says it yet
    growing.write([message(1, "orders", body=second, properties=(("KEYS", '{"id":2}'),))])
    growing.archive()
    update(spark, growing.lake, config)
    found = summarize_topic_table(growing.lake, config)
    assert (found.rows, found.current_rows, found.deleted_rows) == (2, 2, 0)
    # The source's primary key changes.
    growing.write([message(2, "orders", body=second, properties=(("KEYS", '{"id":2,"name":"a"}'),))])
    growing.archive()
    with pytest.raises(TopicConfigError, match="expected the key by which topics/orders_current was made, found id, t"):
        update(spark, growing.lake, config)
    assert summarize_topic_table(growing.lake, config).rows == 3
    shutil.rmtree(growing.lake.uri(config.current_table))
    assert maintain(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.DAMAGE
    with pytest.raises(TopicConfigError, match="expected one primary key in all events, found id; id, name"):
        update(spark, growing.lake, config)
    update(spark, growing.lake, replace(config, key=("id", "name")))
    assert summarize_topic_table(growing.lake, config).current_rows == 2


def test_erasures_reach_current_rows(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    connector = CanalConnector()
    rows = [(n, f"name {n}", 1.5, "2026-11-20 14:00:00") for n in range(4)]
    archive(growing, [body for row in rows for body in connector.publish(None, row)])
    update(spark, growing.lake, config)
    archive(growing, connector.publish(rows[1], (1, "secret", 2.5, "2026-11-20 14:00:00")))
    update(spark, growing.lake, config)
    place = ErasureTarget(growing.lake, "1")
    plan = plan_erasure(place, KeysToErase(["order-1", "order-4"]))
    assert {count.table for count in plan.tables if count.rows} >= {config.lake_table, config.current_table}
    run_erasure(place, plan, "a test", datetime.timedelta(days=7), lambda _: None)
    assert [row[0] for row in current(growing.lake, config)] == [0, 2, 3]
    assert all(row["title"] != "secret" for row in rows_of(growing.lake.uri(config.lake_table)))
    archive(growing, connector.publish(rows[2], None))
    update(spark, growing.lake, config)
    assert [row[0] for row in current(growing.lake, config)] == [0, 3]
    # A table that is made again lacks them, too.
    shutil.rmtree(growing.lake.uri(config.current_table))
    maintain(["--lake", growing.lake.root, "--repair", "--quiet"])
    update(spark, growing.lake, config)
    assert [row[0] for row in current(growing.lake, config)] == [0, 3]


@pytest.mark.parametrize("suffix", ["", "_current"])
def test_damaged_tables_are_made_again(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, suffix: str
) -> None:
    source = OrdersSource(CanalConnector())
    archive(growing, source.change_rows(60))
    update(spark, growing.lake, config)
    damaged = f"{config.lake_table}{suffix}"
    first = read_table_files(growing.lake.table(damaged))[0]
    file = Path(growing.lake.uri(damaged)) / first.path
    file.write_bytes(file.read_bytes()[:-9])
    assert maintain(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.DAMAGE
    archive(growing, source.change_rows(60))
    update(spark, growing.lake, config)
    assert current(growing.lake, config) == source.rows()
    assert len(rows_of(growing.lake.uri(config.lake_table))) == 120


def test_audit_counts_messages_with_several_changes_once(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig
) -> None:
    connector = CanalConnector()
    rows = [{"id": str(n), "name": "a"} for n in range(5)]
    bodies = [connector.event("INSERT", rows), connector.event("DELETE", rows[:2]), connector.event("ALTER", None)]
    archive(growing, [*bodies, connector.event("INSERT", [{"id": "x"}]), b""])
    done = update(spark, growing.lake, config)
    assert (done.rows, done.misfits) == (8, 2)
    changes, states = compare_topic_tables(growing.lake.pin_versions(), read_lake_state(growing.lake), AuditSpan(), ())
    assert (changes.compared, changes.messages, changes.rows, changes.misfits) == (True, 5, 3, 2)
    assert (changes.differing, states.compared) == (0, False)
    found = summarize_topic_table(growing.lake, config)
    assert (found.rows, found.current_rows, found.deleted_rows) == (8, 3, 2)
    growing.lake.table(config.lake_table).delete("_op = 'delete'")  # by another program
    changes, _ = compare_topic_tables(growing.lake.pin_versions(), read_lake_state(growing.lake), AuditSpan(), ())
    assert (changes.differing, changes.missing) == (1, 1)


def test_messages_without_a_body_are_tombstones(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    archive(growing, [b"", b"null"])
    done = update(spark, growing.lake, replace(config, changes=DEBEZIUM))
    assert (done.rows, done.misfits) == (2, 0)
    assert {row["_op"] for row in rows_of(growing.lake.uri(config.lake_table))} == {"control"}
    (found,) = compare_topic_tables(growing.lake.pin_versions(), read_lake_state(growing.lake), AuditSpan(), ())[:1]
    assert (found.compared, found.differing, found.rows) == (True, 0, 2)
