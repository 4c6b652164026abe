"""The obvious program in PySpark: whole files, and a Python function that parses them record by record.

It is typical of such programs: `struct` with the format's offsets in one place, a row per record, the main columns of
`messages`, and a check of the CRC. It does not handle damage, filler, IPv6 or records that end in another partition.
"""

from __future__ import annotations

import datetime
import socket
import struct
import zlib
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlake.schemas.layouts.segment_names import segment_name

_MAGIC = 0xDAA320A7
# size, magic, CRC, queue, flag, queue offset, physical offset, sys flag, born time and host, store time and host,
# reconsume times, prepared transaction offset, body size
_HEAD = struct.Struct(">iIiiiqqiq4siq4siiqi")
RECORDS = ArrayType(
    StructType(
        [
            StructField("physical_offset", LongType()),
            StructField("size", IntegerType()),
            StructField("topic", StringType()),
            StructField("queue_id", IntegerType()),
            StructField("queue_offset", LongType()),
            StructField("unique_key", StringType()),
            StructField("keys", ArrayType(StringType())),
            StructField("tags", StringType()),
            StructField("born_timestamp", TimestampType()),
            StructField("store_timestamp", TimestampType()),
            StructField("born_host", StringType()),
            StructField("store_host", StringType()),
            StructField("sys_flag", IntegerType()),
            StructField("flag", IntegerType()),
            StructField("reconsume_times", IntegerType()),
            StructField("prepared_transaction_offset", LongType()),
            StructField("body_size", IntegerType()),
            StructField("body_crc", IntegerType()),
            StructField("properties", MapType(StringType(), StringType())),
        ]
    )
)


def parse_segment(content: bytes) -> list[tuple[Any, ...]]:
    """Yield the records of a file, up to the first bytes that are not a record.

    Raises:
        ValueError: if a body does not match its CRC.
    """
    rows = []
    position = 0
    while position + _HEAD.size <= len(content):
        (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born, born_ip, born_port, stored,
         store_ip, store_port, reconsumed, prepared, body_size) = _HEAD.unpack_from(content, position)  # fmt: skip
        if magic != _MAGIC or position + size > len(content):
            break
        place = position + _HEAD.size
        if zlib.crc32(content[place : place + body_size]) & 0x7FFFFFFF != crc:
            raise ValueError(f"the body at {position} does not have its CRC")
        place += body_size
        topic_end = place + 1 + content[place]
        topic = content[place + 1 : topic_end].decode()
        (properties_size,) = struct.unpack_from(">h", content, topic_end)
        text = content[topic_end + 2 : topic_end + 2 + properties_size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        rows.append((
            physical_offset, size, topic, queue_id, queue_offset, properties.get("UNIQ_KEY"),
            properties["KEYS"].split(" ") if "KEYS" in properties else None, properties.get("TAGS"),
            datetime.datetime.fromtimestamp(born / 1000, datetime.UTC),
            datetime.datetime.fromtimestamp(stored / 1000, datetime.UTC),
            f"{socket.inet_ntoa(born_ip)}:{born_port}", f"{socket.inet_ntoa(store_ip)}:{store_port}",
            sys_flag, flag, reconsumed, prepared, body_size, crc, properties,
        ))  # fmt: skip
        position += size
    return rows


def read_naively(spark: SparkSession, store: Path) -> DataFrame:
    """Return one row per record of a store whose segments fit within Spark's limit of 2 GiB and into memory."""
    # A lambda has no type hints, in which Spark would look for its own types, and warn.
    parse = F.udf(lambda content: parse_segment(content), RECORDS)  # noqa: PLW0108
    files = spark.read.format("binaryFile").load(str(store / "commitlog"))
    return files.select(F.explode(parse("content")).alias("record")).select("record.*")


def cut_sample(store: Path, sample: Path, size: int) -> int:
    """Copy the first bytes of a store into a store of one segment, and return their number."""
    (sample / "commitlog").mkdir(parents=True)
    with (store / "commitlog" / segment_name(0)).open("rb") as whole:
        return (sample / "commitlog" / segment_name(0)).write_bytes(whole.read(size))
