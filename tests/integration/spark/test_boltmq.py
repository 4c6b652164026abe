"""BoltMQ's dialect of the CommitLog through Spark and the jobs, by the same source and without an option."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake import register
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.reading.stores import find_stores, segment_size
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.jobs.dump import command as dump
from commitlake.jobs.explain import command as explain
from commitlake.jobs.guard import command as guard
from commitlake.jobs.query import command as query
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from tests.support.comparing import COLUMNS, Row, spark_rows
from tests.support.indexed_stores import OPTIONS, RARE, Clock, message, write_indexed_store

BOLTMQ_OPTIONS = replace(OPTIONS, dialect=BOLTMQ)
NEGATIVE_CRC_BODY = b"123456789"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A broker's store of several segments; the last message was delayed, and delivered."""
    root = write_indexed_store(tmp_path / "broker-b" / "store", 598, options=BOLTMQ_OPTIONS)
    clock = Clock()
    clock.now_ms += 10_000_000
    with MessageStore.open(root, BOLTMQ_OPTIONS, clock=clock) as opened:
        delivery = Delivery(opened)
        properties = (("DELAY", "1"), ("KEYS", "delayed"))
        delivery.send(replace(message(1, random.Random(1)), body=NEGATIVE_CRC_BODY, properties=properties))
        assert len(delivery.deliver_due(clock.now_ms + 2000)) == 1
    return root


def plain_rows(path: Path) -> list[Row]:
    """Return every record as the plain reader sees it."""
    (store,) = find_stores(str(path), formats=COMMITLOGS)
    rows = [
        to_message_row(found.message, store.broker)
        for found in walk_store(store, segment_size(store))
        if found.message is not None
    ]
    return [{name: row[name] for name in COLUMNS} for row in rows]


@pytest.mark.long("the jobs read a BoltMQ store each time, and the source reads RocketMQ's stores by the same code")
def test_source_gives_the_rows_of_the_plain_reader(spark: SparkSession, store: Path) -> None:
    register(spark)
    frame = spark.read.format("commitlog").option("maxPartitionBytes", "10000").load(str(store))
    rows = spark_rows(frame.drop("body"))
    assert rows == plain_rows(store)
    assert [(row["kind"], row["topic"], row["body_crc"]) for row in rows[-2:]] == [
        ("delay", "SCHEDULE_TOPIC_XXX", 0x4BF43926), ("normal", "topic-1", 0x4BF43926),
    ]  # fmt: skip
    by_key = spark.read.format("commitlog").option("topics", RARE).option("keys", "order-40").load(str(store))
    assert [row["keys"] for row in by_key.collect()] == [["order-40", "group-40"]]


@pytest.mark.long("the jobs archive a BoltMQ store each time")
def test_a_boltmq_store_is_archived_once_with_its_bodies(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    config = Config(str(store), Lake(str(lake)))
    assert run_archive(SparkRunner(spark), config).messages == 600
    assert run_archive(SparkRunner(spark), config).messages == 0
    table = spark.read.format("delta").load(f"{lake}/messages")
    assert spark_rows(table.drop("store_date", "body_ref")) == plain_rows(store)
    bodies = with_bodies(table, str(lake / "bodies")).where(F.array_contains("keys", "delayed")).collect()
    assert [bytes(row["body"]) for row in bodies] == [NEGATIVE_CRC_BODY] * 2


def test_jobs_serve_a_boltmq_store(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")
    assert archive.main(["--store", str(store), "--lake", lake, "--local", "--quiet"]) == 0
    assert query.main(["--lake", lake, "--key", "delayed", "--output", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["kind"] for row in rows) == ["delay", "normal"]
    assert audit.main(["--lake", lake, "--store", str(store), "--local", "--quiet"]) == 0
    assert guard.main(["--store", str(store), "--lake", lake, "--output", "json"]) == 0
    capsys.readouterr()
    assert dump.main([str(store)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 600
    assert explain.main([str(store), "--topic", RARE, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["segments"] > 1
