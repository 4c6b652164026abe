"""Profiles of any table of messages, by window, and the differences between two profiles.

The columns are `AUDIT` of `schemas.tables.profile`. Rows of the source, of `messages`, of HBase and those seen by the
tasks of an archive run have the same profile if they are the same messages.

Checksums are sums of hashes of columns; `pipelines.quality.checksums` computes the same hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StringType, StructType, TimestampType

from commitlake.schemas.tables.profile import (
    AUDIT,
    CHECKSUM_COLUMNS,
    COLUMN_CHECKSUMS,
    FIGURES,
    KEY_COLUMNS,
    NULL_NUMBER,
    OPTIONAL_CHECKSUMS,
    WINDOW_SECONDS,
    ColumnChecksum,
)
from commitlake.schemas.tables.spark import spark_schema

DIFFERENCE = "difference"
DIFFERENT_COLUMNS = "different_columns"
_LOW = 0xFFFFFFFF


def to_profile(messages: DataFrame) -> DataFrame:
    """Profile messages: count, sum and hash them by queue and window of ten minutes.

    >>> messages = spark.sql('''
    ...     select 'a' as broker, 'orders' as topic, 0 as queue_id, number as queue_offset,
    ...         200 * number as physical_offset, 200 as size, 50 as body_size, 7 as body_crc,
    ...         timestamp(time) as store_timestamp
    ...     from values (0L, '2026-11-20 12:00:01'), (1L, '2026-11-20 12:09:59'), (2L, '2026-11-20 12:10:00')
    ...         as m(number, time)''')
    >>> columns = ["queue_id", "window_start", "messages", "bytes", "last_queue_offset", "last_physical_offset"]
    >>> to_profile(messages).select(*columns).orderBy("window_start").show()
    +--------+-------------------+--------+-----+-----------------+--------------------+
    |queue_id|       window_start|messages|bytes|last_queue_offset|last_physical_offset|
    +--------+-------------------+--------+-----+-----------------+--------------------+
    |       0|2026-11-20 12:00:00|       2|  400|                1|                 200|
    |       0|2026-11-20 12:10:00|       1|  200|                2|                 400|
    +--------+-------------------+--------+-----+-----------------+--------------------+
    <BLANKLINE>

    Args:
        messages: at least `broker`, `topic`, `queue_id`, `queue_offset`, `physical_offset`, `size`, `body_size`,
            `body_crc` and `store_timestamp`, as in `messages`; rows without a size, which are bad ranges, are left out.
            The checksums of `OPTIONAL_CHECKSUMS` are null if one of their columns does not exist.

    Returns:
        A table of `AUDIT`: one row per broker, topic, queue and window. Counts and sums are never null; a minimum or
        maximum is null if all its values are.
    """
    hashed = messages.where(F.col("size").isNotNull()).select(
        *(F.col(name) for name in ("broker", "topic", "queue_id")),
        _window_start().alias("window_start"),
        *(F.col(name) for name in ("size", "body_size", "queue_offset", "physical_offset", "store_timestamp")),
        _row_hash().alias("checksum"),
        *(column_hash(messages.schema, checksum).alias(checksum.name) for checksum in COLUMN_CHECKSUMS),
    )
    return (
        hashed.groupBy(*KEY_COLUMNS)
        .agg(
            F.count("*").alias("messages"),
            _sum("size").alias("bytes"),
            _sum("body_size").alias("body_bytes"),
            wrapped_sum("checksum").alias("checksum"),
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


def combine_profiles(profiles: DataFrame) -> DataFrame:
    """Combine the parts of windows that several runs took.

    >>> profiles = to_profile(spark.sql('''
    ...     select 'a' as broker, 'orders' as topic, 0 as queue_id, number as queue_offset,
    ...         200 * number as physical_offset, 200 as size, 50 as body_size, 7 as body_crc,
    ...         timestamp'2026-11-20 12:00:00' as store_timestamp
    ...     from values (0L), (1L), (2L) as m(number)'''))
    >>> later = profiles.withColumn("messages", F.lit(4)).withColumn("last_queue_offset", F.lit(6))
    >>> combined = combine_profiles(profiles.unionByName(later))
    >>> combined.select("messages", "bytes", "first_queue_offset", "last_queue_offset").show()
    +--------+-----+------------------+-----------------+
    |messages|bytes|first_queue_offset|last_queue_offset|
    +--------+-----+------------------+-----------------+
    |       7| 1200|                 0|                6|
    +--------+-----+------------------+-----------------+
    <BLANKLINE>

    Args:
        profiles: at least `AUDIT`, as in `profiles`, or without `OPTIONAL_CHECKSUMS`, as earlier versions wrote it; a
            window may have any number of rows.

    Returns:
        A table of `AUDIT`: one row per broker, topic, queue and window. An optional checksum is null if one of the
        window's parts has none.
    """
    least = [name for name in FIGURES if name.startswith(("first_", "min_"))]
    greatest = [name for name in FIGURES if name.startswith(("last_", "max_"))]
    return (
        profiles.groupBy(*KEY_COLUMNS)
        .agg(
            *(_sum(name).alias(name) for name in ("messages", "bytes", "body_bytes")),
            wrapped_sum("checksum").alias("checksum"),
            *(F.min(name).alias(name) for name in least),
            *(F.max(name).alias(name) for name in greatest),
            *(_known_sum(name).alias(name) for name in OPTIONAL_CHECKSUMS if name in profiles.columns),
            *(F.lit(None).cast("long").alias(name) for name in OPTIONAL_CHECKSUMS if name not in profiles.columns),
        )
        .to(spark_schema(AUDIT))
    )


def compare_profiles(expected: DataFrame, found: DataFrame, *, columns: Sequence[str] = FIGURES) -> DataFrame:
    """List the windows in which two profiles differ, ordered by key.

    >>> expected, found = (
    ...     spark.sql(f'''
    ...         select 'a' as broker, topic, 0 as queue_id, timestamp'2026-11-20 12:00:00' as window_start, messages
    ...         from values {rows} as p(topic, messages)''')
    ...     for rows in ("('lost', 1L), ('orders', 2L), ('same', 3L)", "('orders', 5L), ('same', 3L)"))
    >>> differences = compare_profiles(expected, found, columns=["messages"])
    >>> differences.select("topic", "difference", "different_columns", "expected_messages", "found_messages").show()
    +------+----------+-----------------+-----------------+--------------+
    | topic|difference|different_columns|expected_messages|found_messages|
    +------+----------+-----------------+-----------------+--------------+
    |  lost|   missing|       [messages]|                1|          NULL|
    |orders| different|       [messages]|                2|             5|
    +------+----------+-----------------+-----------------+--------------+
    <BLANKLINE>

    Args:
        expected: a table of `AUDIT` with the expected figures, one row per window.
        found: a profile to compare with it, possibly with only some of the columns.
        columns: columns to compare; both profiles must have them.

    Returns:
        The key's columns; `difference`, which is "missing" where only `expected` has the window, "unexpected" where
        only `found` has it, else "different"; `different_columns`, an array of names; and for each compared column
        `expected_…` and `found_…`. One row per window that differs, by broker, topic, queue and window, those without
        a time first. Empty if the two are the same.
    """
    pairs = [(F.col(f"expected.{name}"), F.col(f"found.{name}")) for name in columns]
    differs = [_differs(name, *pair) for name, pair in zip(columns, pairs, strict=True)]
    names = F.array_compact(
        F.array(*(F.when(unequal, F.lit(name)) for name, unequal in zip(columns, differs, strict=True)))
    )
    sides = F.col("expected.there").isNull(), F.col("found.there").isNull()
    joined = (
        _marked(expected, columns)
        .alias("expected")
        .join(_marked(found, columns).alias("found"), on=_same_key(), how="full_outer")
    )
    kind = F.when(sides[1], "missing").when(sides[0], "unexpected").otherwise("different")
    return (
        joined.where(sides[0] | sides[1] | reduce(or_, differs))
        .select(
            *(F.coalesce(F.col(f"expected.{name}"), F.col(f"found.{name}")).alias(name) for name in KEY_COLUMNS),
            kind.alias(DIFFERENCE),
            names.alias(DIFFERENT_COLUMNS),
            *(left.alias(f"expected_{name}") for name, (left, _) in zip(columns, pairs, strict=True)),
            *(right.alias(f"found_{name}") for name, (_, right) in zip(columns, pairs, strict=True)),
        )
        .orderBy(*KEY_COLUMNS)
    )


def count_windows(profile: DataFrame) -> DataFrame:
    """Count the windows and the messages of a profile.

    >>> profile = spark.sql("select * from values (2L), (3L) as p(messages)")
    >>> count_windows(profile).show()
    +-------+--------+
    |windows|messages|
    +-------+--------+
    |      2|       5|
    +-------+--------+
    <BLANKLINE>

    Args:
        profile: at least `messages`, as in `AUDIT`.

    Returns:
        `windows` and `messages`; one row, never null.
    """
    return profile.agg(F.count("*").alias("windows"), F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"))


def _differs(name: str, expected: Column, found: Column) -> Column:
    """Return whether two figures differ; in an optional checksum, an unknown value is no difference."""
    differs = ~expected.eqNullSafe(found)
    return differs & expected.isNotNull() & found.isNotNull() if name in OPTIONAL_CHECKSUMS else differs


def _marked(profile: DataFrame, columns: Sequence[str]) -> DataFrame:
    return profile.select(*KEY_COLUMNS, *columns, F.lit(True).alias("there"))


def _same_key() -> Column:
    """Return the join condition for equal keys, where null equals null; in this form Spark can sort or hash."""
    same = [F.col(f"expected.{name}").eqNullSafe(F.col(f"found.{name}")) for name in KEY_COLUMNS]
    return reduce(and_, same)


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
    return F.when(F.count_if(F.col(name).isNull()) == 0, wrapped_sum(name))


def wrapped_sum(name: str) -> Column:
    """Return the sum modulo 2^64 of a column of longs; Spark's own `sum` fails on an overflow.

    The halves are summed, and put together.

    >>> numbers = spark.sql(f"select * from values ({2**63 - 1}L), (1L) as n(number)")
    >>> numbers.agg(wrapped_sum("number").alias("sum")).show()
    +--------------------+
    |                 sum|
    +--------------------+
    |-9223372036854775808|
    +--------------------+
    <BLANKLINE>

    Args:
        name: name of the column.
    """
    value = F.col(name)
    low = F.sum(value.bitwiseAND(F.lit(_LOW)))
    high = F.sum(F.shiftright(value, 32)) + F.shiftright(low, 32)
    return F.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(F.lit(_LOW)))


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
