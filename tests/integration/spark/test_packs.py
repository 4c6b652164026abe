"""Bodies joined to messages by Spark: three packs, some of their rows, in any order."""

from __future__ import annotations

import datetime
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from commitlake.connectors.lake.packs.frames import FRAME_BYTES
from commitlake.connectors.lake.packs.names import pack_name
from commitlake.connectors.lake.packs.spark_reader import with_bodies
from commitlake.connectors.lake.packs.writer import open_pack_writer
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from commitlake.schemas.tables.messages import BODY_REF
from commitlake.schemas.tables.spark_schemas import spark_field
from tests.support.packs import TOKEN, append, folder_store

DAY = datetime.date(2026, 11, 20)
BODY_COUNT = 5000
PACKS = [
    pack_name(day, broker, 0, end, TOKEN)
    for day, broker, end in ((DAY, "broker-a", 1 << 27), (DAY, "broker-b", 1 << 27), (None, "ü/..", 9))
]
COLUMNS = StructType(
    [
        StructField("n", LongType()),
        StructField("properties", MapType(StringType(), StringType())),  # a column that passes through
        StructField("body_crc", IntegerType()),
        spark_field(BODY_REF),
    ]
)
Row = tuple[Any, ...]


def make_bodies() -> list[bytes]:
    """Return bodies of all sizes: most of a few hundred bytes, some empty, one larger than a frame."""
    chance = random.Random(4711)
    bodies = [chance.randbytes(chance.choice([0, 7, 300, 900])) for _ in range(BODY_COUNT)]
    bodies[1234] = chance.randbytes(2 * FRAME_BYTES)
    return bodies


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    """The bodies in the packs, by the column `n`."""
    return make_bodies()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake's folder of bodies."""
    return tmp_path_factory.mktemp("lake") / "bodies"


@pytest.fixture(scope="module")
def rows(root: Path, bodies: list[bytes]) -> list[Row]:
    """The rows of the table, shuffled; three of them have no body in the lake."""
    rows: list[Row] = [(-number, {"k": "v"}, 5, None) for number in range(1, 4)]
    for number, name in enumerate(PACKS):
        mine = range(number, BODY_COUNT, len(PACKS))
        with open_pack_writer(folder_store(root), name) as writer:
            append(writer, [bodies[row] for row in mine])
        refs = writer.finish()
        places = zip(refs.frame_offsets, refs.frame_lengths, refs.offsets, refs.lengths, strict=True)
        rows += [
            (row, {"k": str(row)}, body_crc(bodies[row]), (name, *map(int, place)))
            for row, place in zip(mine, places, strict=True)
        ]
    random.Random(7).shuffle(rows)
    return rows


@pytest.fixture
def messages(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """The table, in a few partitions."""
    return spark.createDataFrame(rows, COLUMNS).repartition(3)


def test_every_row_gets_its_body(messages: DataFrame, root: Path, rows: list[Row], bodies: list[bytes]) -> None:
    found = with_bodies(messages, str(root), as_stored=True)
    assert found.schema.names == [*COLUMNS.names, "body"]
    by_number = {row.n: row for row in found.collect()}
    assert len(by_number) == BODY_COUNT + 3
    assert [by_number[number].body for number in (-3, -2, -1)] == [None] * 3
    assert [bytes(by_number[number].body) for number in range(BODY_COUNT)] == bodies
    expected = {row[0]: row for row in rows}
    assert all(tuple(row)[:3] == expected[number][:3] for number, row in by_number.items())
    assert all(row.body_ref == expected[number][3] for number, row in by_number.items())


def test_some_rows_get_their_bodies_in_small_batches(
    spark: SparkSession, messages: DataFrame, root: Path, bodies: list[bytes]
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        found = with_bodies(messages.where("n % 10 = 4"), str(root), as_stored=True).collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert {row.n: bytes(row.body) for row in found} == {n: bodies[n] for n in range(4, BODY_COUNT, 10)}


def test_a_pack_is_read_by_one_task(messages: DataFrame, root: Path) -> None:
    by_pack = with_bodies(messages, root.as_uri(), as_stored=True).select(
        "body_ref.pack", F.spark_partition_id().alias("task")
    )
    counted = {row[0]: row[1] for row in by_pack.distinct().groupBy("pack").count().collect() if row[0]}
    assert counted == dict.fromkeys(PACKS, 1)


def test_a_missing_pack_fails_the_query(messages: DataFrame, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "bodies")
    (tmp_path / "bodies" / PACKS[1]).unlink()
    with pytest.raises(PythonException, match="Has it expired by a lifecycle rule") as raised:
        with_bodies(messages, str(tmp_path / "bodies"), as_stored=True).collect()
    assert PACKS[1] in str(raised.value)


def test_a_body_that_was_changed_fails_the_query(messages: DataFrame, root: Path) -> None:
    changed = messages.withColumn("body_crc", F.when(F.col("n") == 42, F.lit(1)).otherwise(F.col("body_crc")))
    with pytest.raises(PythonException, match="expected a body with the CRC 1 at"):
        with_bodies(changed, str(root), as_stored=True).collect()
