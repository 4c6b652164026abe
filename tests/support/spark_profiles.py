"""Profiles of messages as Spark computes them, by the definition in `schemas.tables.profile` alone.

The code that computes profiles in tasks is compared with these.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StringType, StructType, TimestampType

from commitlake.schemas.tables.profile import (
    AUDIT,
    CHECKSUM_COLUMNS,
    COLUMN_CHECKSUMS,
    KEY_COLUMNS,
    NULL_NUMBER,
    OPTIONAL_CHECKSUMS,
    WINDOW_SECONDS,
    ColumnChecksum,
)
from commitlake.schemas.tables.spark_schemas import spark_schema

_LOW = 0xFFFFFFFF


def to_profile(messages: DataFrame) -> DataFrame:
    """Count, sum and hash messages by queue and window of ten minutes, as a table of `AUDIT`.

    Args:
        messages: rows of `messages`, of HBase, or of a source; rows without a size, which are bad ranges, are left out.
    """
    hashed = messages.where(F.col("size").isNotNull()).select(
        *(F.col(name) for name in ("broker", "topic", "queue_id")),
        _window_start().alias("window_start"),
        *(F.col(name) for name in ("size", "body_size", "queue_offset", "physical_offset", "store_timestamp")),
        _row_hash().alias("checksum"),
        *(_column_hash(messages.schema, checksum).alias(checksum.name) for checksum in COLUMN_CHECKSUMS),
    )
    return (
        hashed.groupBy(*KEY_COLUMNS)
        .agg(
            F.count("*").alias("messages"),
            _sum("size").alias("bytes"),
            _sum("body_size").alias("body_bytes"),
            _wrapped_sum("checksum").alias("checksum"),
            F.min("queue_offset").alias("first_queue_offset"),
            F.max("queue_offset").alias("last_queue_offset"),
            F.min("physical_offset").alias("first_physical_offset"),
            F.max("physical_offset").alias("last_physical_offset"),
            F.min("store_timestamp").alias("min_store_timestamp"),
            F.max("store_timestamp").alias("max_store_timestamp"),
            *(_known_sum(name).alias(name) for name in OPTIONAL_CHECKSUMS),
        )
        .to(spark_schema(AUDIT))
    )


def _window_start() -> Column:
    micros = F.unix_micros("store_timestamp")
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(WINDOW_SECONDS * 1_000_000)))


def _row_hash() -> Column:
    values = [
        F.unix_millis(name) if name == "store_timestamp" else F.col(name).cast("long") for name in CHECKSUM_COLUMNS
    ]
    return F.xxhash64(*values)


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(F.col(name).cast("long")), F.lit(0).cast("long"))


def _known_sum(name: str) -> Column:
    """Return the sum modulo 2^64, or null if one of the values is null."""
    return F.when(F.count_if(F.col(name).isNull()) == 0, _wrapped_sum(name))


def _wrapped_sum(name: str) -> Column:
    """Return the sum modulo 2^64; Spark's own `sum` fails on an overflow. The halves are summed, and put together."""
    value = F.col(name)
    low = F.sum(value.bitwiseAND(F.lit(_LOW)))
    high = F.sum(F.shiftright(value, 32)) + F.shiftright(low, 32)
    return F.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(F.lit(_LOW)))


def _column_hash(schema: StructType, checksum: ColumnChecksum) -> Column:
    """Hash the columns of a checksum; null if the rows lack one, or have null in the required one."""
    names = checksum.columns
    if not {name.split(".")[0] for name in names} <= set(schema.names):
        return F.lit(None).cast("long")
    hashed = F.xxhash64(*(number for name in names for number in _numbers(F.col(name), _type_of(schema, name))))
    return F.when(F.col(checksum.required).isNotNull(), hashed) if checksum.required else hashed


def _type_of(schema: DataType, path: str) -> DataType:
    for name in path.split("."):
        assert isinstance(schema, StructType)
        schema = schema[name].dataType
    return schema


def _numbers(value: Column, data_type: DataType) -> list[Column]:
    if isinstance(data_type, MapType):
        found = [F.xxhash64(F.map_keys(value)), F.xxhash64(F.map_values(value))]
    elif isinstance(data_type, ArrayType | StringType):
        found = [F.xxhash64(value)]
    elif isinstance(data_type, TimestampType):
        found = [F.unix_micros(value)]
    elif isinstance(data_type, DateType):
        found = [F.unix_date(value).cast("long")]
    else:
        found = [value.cast("long")]
    return [F.when(value.isNotNull(), number).otherwise(F.lit(NULL_NUMBER)) for number in found]
