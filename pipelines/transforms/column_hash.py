"""Hashes of columns of `messages` as Spark expressions; `pipelines.quality.checksums` computes the same hashes.

`schemas.tables.profile` defines the hashed columns.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StringType, StructType, TimestampType

from commitlake.schemas.tables.profile import NULL_NUMBER, ColumnChecksum


def column_hash(schema: StructType, checksum: ColumnChecksum) -> Column:
    """Hash the given columns of a message.

    >>> checksum = ColumnChecksum("tags_checksum", ("physical_offset", "tags"), "of the tags", required="tags")
    >>> rows = spark.sql("select number as physical_offset, tags from values (0L, 'a'), (1L, null) as m(number, tags)")
    >>> hashed = rows.select("physical_offset", column_hash(rows.schema, checksum).alias("hash"))
    >>> hashed.orderBy("physical_offset").show()
    +---------------+-------------------+
    |physical_offset|               hash|
    +---------------+-------------------+
    |              0|1083824292868594443|
    |              1|               NULL|
    +---------------+-------------------+
    <BLANKLINE>

    Args:
        schema: schema of the rows.
        checksum: one of `COLUMN_CHECKSUMS`.

    Returns:
        A bigint; null if the rows lack one of the columns, or have null in the required one.
    """
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
