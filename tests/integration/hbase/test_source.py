"""The Spark source `hbase`: written rows read back equal, in partitions by salt."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.hbase.tables import open_or_create_table
from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.hbase_tables import append, by_place, delta_rows, message_rows, rare_rows

AUDITED = "broker,physical_offset,topic,queue_id,queue_offset,size,body_crc,store_timestamp"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of messages, the rare ones among them."""
    append(tmp_path / "messages", message_rows(500) + rare_rows())
    return str(tmp_path / "messages")


def _given(options: HBaseOptions, **more: str) -> dict[str, str]:
    return {"host": options.host, "port": str(options.port), "table": options.table, **more}


def _read(spark: SparkSession, options: HBaseOptions, **more: str) -> DataFrame:
    return spark.read.format("hbase").options(**_given(options, **more)).load()


def test_the_projection_is_read_back_row_by_row(
    spark: SparkSession, tmp_path: Path, uri: str, options: HBaseOptions
) -> None:
    follow_messages(None, Lake(str(tmp_path)), options)
    found = _read(spark, options)
    assert found.schema == spark_schema(MESSAGES)
    assert by_place(found.toArrow().to_pylist()) == delta_rows(uri)


@pytest.mark.long("all columns are read back each time, by the same partitions")
def test_requested_columns_are_read_in_partitions_by_salt(
    spark: SparkSession, tmp_path: Path, uri: str, options: HBaseOptions
) -> None:
    follow_messages(None, Lake(str(tmp_path)), options)
    found = _read(spark, options, columns=AUDITED)
    assert ",".join(found.columns) == AUDITED
    assert found.rdd.getNumPartitions() == options.salts
    expected = [{name: row[name] for name in sorted(AUDITED.split(","))} for row in delta_rows(uri)]
    assert by_place(found.toArrow().to_pylist()) == expected
    by_schema = (
        spark.read.format("hbase").schema("broker string, physical_offset long").options(**_given(options)).load()
    )
    assert by_schema.columns == ["broker", "physical_offset"]
    assert by_schema.count() == 508


@pytest.mark.long("rows are read back each time")
def test_a_dataframe_can_be_written_twice(spark: SparkSession, uri: str, options: HBaseOptions) -> None:
    messages = spark.read.format("delta").load(uri)
    for _ in range(2):
        messages.write.format("hbase").mode("append").options(**_given(options, salts="3")).save()
    assert by_place(_read(spark, options).toArrow().to_pylist()) == delta_rows(uri)
    with Client(options) as client:
        assert open_or_create_table(client).salts == 3


@pytest.mark.long("a DataFrame is written by the same code each time")
def test_a_stream_is_written(spark: SparkSession, uri: str, options: HBaseOptions, tmp_path: Path) -> None:
    stream = spark.readStream.format("delta").load(uri).writeStream.format("hbase").options(**_given(options))
    for rows in ([], message_rows(20, first=500)):
        if rows:
            append(uri, rows)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert by_place(_read(spark, options).toArrow().to_pylist()) == delta_rows(uri)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batchRow": "1"}, "there is no option"),
        ({"columns": "topic,body"}, "expected columns of messages, which are broker, .*found .?'body"),
        ({}, "there is no HBase table"),
    ],
)
def test_a_wrong_option_of_a_read_is_an_error(
    spark: SparkSession, options: HBaseOptions, more: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        _read(spark, options, **more).count()


def test_overwrite_mode_is_refused(spark: SparkSession, uri: str, options: HBaseOptions) -> None:
    messages = spark.read.format("delta").load(uri)
    with pytest.raises(PySparkException, match="mode overwrite is not supported, only append"):
        messages.write.format("hbase").mode("overwrite").options(**_given(options)).save()


def test_rows_with_other_columns_are_refused(spark: SparkSession, options: HBaseOptions) -> None:
    frame = spark.createDataFrame([("broker-a", 1)], "broker string, place int")
    with pytest.raises(PySparkException, match="a message has no columns place"):
        frame.write.format("hbase").mode("append").options(**_given(options)).save()
