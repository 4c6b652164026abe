"""The profiles that tasks of an archive and of an audit compute equal that of Spark, number by number."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.quality.expectation_input import BrokerFacts, RunFacts
from commitlake.pipelines.quality.profile import profile_rows
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.schemas.tables.messages import BODY_PLACE
from commitlake.schemas.tables.profile import AUDIT
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.servers.recording import RecordedStore
from tests.support.judged_profiles import judge_profile
from tests.support.profiles import NOON, SCHEMA, Row, message, messages, profile_of
from tests.support.spark_profiles import to_profile
from tests.support.windows import windows_of

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def hostile_rows(seed: int, count: int) -> list[Row]:
    """Return rows with any numbers, and nulls wherever one can be."""
    chance = random.Random(seed)

    def sometimes(value: object) -> object:
        return None if chance.random() < 0.1 else value

    def long() -> int:
        return chance.choice([0, -1, _LEAST, _GREATEST, chance.randrange(_LEAST, _GREATEST), chance.randrange(1000)])

    def integer() -> int:
        return chance.choice([0, -1, -(1 << 31), (1 << 31) - 1, chance.randrange(-(1 << 31), 1 << 31)])

    def text() -> str:
        return "".join(
            chance.choices("ab \u00fc\U0001f600", k=chance.choice([0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 64, 99]))
        )

    def time() -> datetime.datetime:
        return NOON + datetime.timedelta(microseconds=chance.randrange(-(10**10), 10**10))

    return [
        message(
            number,
            broker=chance.choice(["a", "b"]),
            topic=chance.choice(["orders", "payments", "", "\u00fc"]),
            queue_id=sometimes(chance.randrange(2)),
            physical_offset=sometimes(long()),
            queue_offset=sometimes(long()),
            size=integer(),
            body_size=sometimes(integer()),
            body_crc=sometimes(integer()),
            store_timestamp=sometimes(time()),
            born_timestamp=sometimes(time()),
            msg_id=sometimes(text()),
            unique_key=sometimes(text()),
            keys=sometimes([text() for _ in range(chance.randrange(4))]),
            tags=sometimes(text()),
            kind=sometimes(text()),
            born_host=sometimes(text()),
            store_host=sometimes(text()),
            sys_flag=sometimes(integer()),
            flag=sometimes(integer()),
            reconsume_times=sometimes(integer()),
            priority=sometimes(integer()),
            prepared_transaction_offset=sometimes(long()),
            body_codec=sometimes(text()),
            properties=sometimes([(f"{name}{text()}", text()) for name in range(chance.randrange(4))]),
            body_ref=sometimes(
                dict(zip(BODY_PLACE.names, [text(), long(), integer(), integer(), integer()], strict=True))
            ),
        )
        for number in range(count)
    ]


def audit_rows(table: pa.Table) -> list[Row]:
    """Return the audit's columns in order of the key, nulls last."""
    rows = table.select(list(AUDIT.names)).to_pylist()
    return sorted(
        rows,
        key=lambda row: (
            row["broker"],
            row["topic"],
            row["queue_id"] is None,
            row["queue_id"] or 0,
            row["window_start"] is None,
            row["window_start"] or NOON,
        ),
    )


def names_and_types(table: DataFrame | StructType) -> list[tuple[str, str]]:
    """Return a table's columns."""
    fields = table.schema.fields if isinstance(table, DataFrame) else table.fields
    return [(field.name, field.dataType.simpleString()) for field in fields]


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Return rows of messages, spread over partitions."""
    times = [row["store_timestamp"] for row in rows]
    dates = pa.array([None if time is None else time.date() for time in times], pa.date32())
    table = pa.Table.from_pylist(rows, schema=SCHEMA).append_column("store_date", dates)
    return spark.createDataFrame(table).repartition(3)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long("more rows")) for seed in (1, 2))])
def test_any_rows_give_the_same_profile_in_spark_and_in_a_task(spark: SparkSession, seed: int) -> None:
    rows = hostile_rows(seed, 2000)
    parts = [profile_of(rows[:700]), profile_of(rows[700:701]), profile_of(rows[701:])]
    found = to_profile(frame_of(spark, rows))
    assert names_and_types(found) == names_and_types(spark_schema(AUDIT))
    expected = audit_rows(merge_profiles(parts))
    assert audit_rows(found.toArrow()) == audit_rows(windows_of(rows)) == expected
    assert len(expected) > 50
    assert any(row["window_start"] is None for row in expected)


def test_bad_ranges_do_not_count(spark: SparkSession) -> None:
    rows = messages(range(5))
    bad = {**dict.fromkeys(rows[0]), "broker": "a", "physical_offset": 99_000}
    assert audit_rows(to_profile(frame_of(spark, [*rows, bad])).toArrow()) == audit_rows(profile_of(rows))


@pytest.fixture
def archived(spark: SparkSession, recorded_store: RecordedStore, tmp_path: Path) -> DeltaTable:
    """A real store's messages in a lake, in several data files."""
    lake = tmp_path / "lake"
    run_archive(
        SparkRunner(spark), Config(str(recorded_store.store), Lake(str(lake)), "broker-a", max_partition_bytes=1 << 20)
    )
    return DeltaTable(lake / "messages")


def parts_of(table: DeltaTable) -> Iterator[pa.Table]:
    """Yield the rows of each data file."""
    for uri in table.file_uris():
        yield pq.ParquetFile(uri).read()


@pytest.mark.long("made stores have the same profile from log, table and tasks each time")
def test_a_real_store_has_the_same_profile_from_log_table_and_tasks(
    spark: SparkSession, recorded_store: RecordedStore, archived: DeltaTable
) -> None:
    source = spark.read.format("commitlog").option("broker", "broker-a").load(str(recorded_store.store))
    table = to_profile(spark.read.format("delta").load(archived.table_uri)).toArrow()
    of_source = to_profile(source).toArrow()
    unknown = {name for name in AUDIT.names if of_source.column(name).null_count == of_source.num_rows}
    assert audit_rows(of_source) == [row | dict.fromkeys(unknown) for row in audit_rows(table)]
    parts = [profile_rows(part) for part in parts_of(archived)]
    assert len(parts) > 1
    assert audit_rows(merge_profiles(parts)) == audit_rows(table)


@pytest.mark.long("a real store is profiled each time")
def test_a_real_store_is_healthy(archived: DeltaTable) -> None:
    profile = merge_profiles(profile_rows(part) for part in parts_of(archived))
    rows = sum(profile.column("messages").to_pylist())
    assert rows > 1500
    log_bytes = max(profile.column("last_physical_offset").to_pylist()) + (1 << 20)
    report = judge_profile(profile, run_facts=RunFacts({"broker-a": BrokerFacts(log_bytes=log_bytes)}, written=rows))
    assert report.critical_failures == []
    # The failing consumer of the recording leaves dead letters.
    assert {found.expectation.name for found in report.warnings} == {"no_dead_letters"}


@pytest.mark.long("expectations are checked without Spark each time")
def test_a_real_store_that_lost_one_message_is_unhealthy(archived: DeltaTable) -> None:
    parts = list(parts_of(archived))
    (part,) = (part for part in parts if part is max(parts, key=lambda each: int(each.num_rows)))
    cut = pa.concat_tables([part.slice(0, part.num_rows // 2), part.slice(part.num_rows // 2 + 1)])
    report = judge_profile(merge_profiles(profile_rows(cut if each is part else each) for each in parts))
    assert [found.expectation.name for found in report.damage_judgements] == ["no_message_is_lost"]
    assert report.damage_judgements[0].observed == 1
