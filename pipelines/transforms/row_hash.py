"""Hashes of whole rows of `messages` as expressions of Spark's; `pipelines.quality.checksums` computes the same.

What they hash is said in `schemas.tables.profile`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StringType, StructType, TimestampType

from commitlake.schemas.tables.profile import (
    FORMAT_CHECKSUM_COLUMNS,
    LAKE_CHECKSUM_COLUMNS,
    NULL_NUMBER,
    ROW_CHECKSUM_COLUMNS,
)


def row_hash(schema: StructType) -> Column:
    """Hash all that a store says of a message.

    >>> rows = spark.sql("select 'a' as broker, 0L as physical_offset")
    >>> rows.select("broker", row_hash(rows.schema).alias("row_hash")).show()
    +------+--------+
    |broker|row_hash|
    +------+--------+
    |     a|    NULL|
    +------+--------+
    <BLANKLINE>

    Args:
        schema: of the rows; null is the result unless it has all of `ROW_CHECKSUM_COLUMNS`.
    """
    return _hash_of(schema, ROW_CHECKSUM_COLUMNS)


def lake_hash(schema: StructType) -> Column:
    """Hash what only the lake says of a message.

    >>> place = "named_struct('pack', 'p', 'frame_offset', 0L, 'frame_length', 9, 'offset', 0, 'length', {})"
    >>> rows = spark.sql(f'''
    ...     select body_ref, date'2026-11-20' as store_date
    ...     from values (1, {place.format(5)}), (2, {place.format(5)}), (3, {place.format(6)}) as r(number, body_ref)
    ...     order by number''')
    >>> hashes = [row["hash"] for row in rows.select(lake_hash(rows.schema).alias("hash")).collect()]
    >>> hashes[0] == hashes[1], hashes[1] == hashes[2]
    (True, False)

    Args:
        schema: of the rows; null is the result unless it has all of `LAKE_CHECKSUM_COLUMNS`.
    """
    return _hash_of(schema, LAKE_CHECKSUM_COLUMNS)


def format_hash(schema: StructType) -> Column:
    """Hash the format of a message's log.

    >>> rows = spark.sql("select 'a' as broker, 0L as physical_offset, cast(null as string) as format")
    >>> rows.select("broker", format_hash(rows.schema).alias("format_hash")).show()
    +------+-----------+
    |broker|format_hash|
    +------+-----------+
    |     a|       NULL|
    +------+-----------+
    <BLANKLINE>

    Args:
        schema: of the rows; null is the result unless it has all of `FORMAT_CHECKSUM_COLUMNS`, and for a row that an
            earlier version archived, without a format.
    """
    hashed = _hash_of(schema, FORMAT_CHECKSUM_COLUMNS)
    return F.when(F.col("format").isNotNull(), hashed) if "format" in schema.names else hashed


def _hash_of(schema: StructType, names: tuple[str, ...]) -> Column:
    if not {name.split(".")[0] for name in names} <= set(schema.names):
        return F.lit(None).cast("long")
    return F.xxhash64(*(number for name in names for number in _numbers(F.col(name), _type_of(schema, name))))


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
