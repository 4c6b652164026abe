"""Message keys as rows of `message_keys`, and the differences between two tables of keys."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.profile import wrapped_sum
from commitlake.schemas.tables.messages import MESSAGE_KEYS

_PLACE = ("broker", "physical_offset", "topic", "store_timestamp")
DIFFERENCE = "difference"


def to_message_keys(messages: DataFrame) -> DataFrame:
    """List the keys of messages.

    >>> messages = spark.sql('''
    ...     select *, timestamp'2026-11-20 12:00:00' as store_timestamp
    ...     from values
    ...         ('a', 0L,   'orders', array('order-1', 'order-2', 'order-1'), 'U0'),
    ...         ('a', 200L, 'orders', null,                                   'U1'),
    ...         ('a', 400L, 'orders', array(),                                null)
    ...         as m(broker, physical_offset, topic, keys, unique_key)''')
    >>> columns = ["physical_offset", "kind", "key", "key_hash"]
    >>> to_message_keys(messages).select(*columns).orderBy(*columns).show()
    +---------------+----------+-------+----------+
    |physical_offset|      kind|    key|  key_hash|
    +---------------+----------+-------+----------+
    |              0|       key|order-1|3769860079|
    |              0|       key|order-2|2042244693|
    |              0|unique_key|     U0|2697759554|
    |            200|unique_key|     U1|3620453332|
    +---------------+----------+-------+----------+
    <BLANKLINE>

    Args:
        messages: at least `broker`, `physical_offset`, `topic`, `store_timestamp`, `keys` and `unique_key`.

    Returns:
        A table of `MESSAGE_KEYS`: one row per message and key, even if a message has the key twice.
    """
    of_business = messages.select(*_PLACE, F.explode(F.array_distinct("keys")).alias("key"), F.lit("key").alias("kind"))
    of_client = messages.where(F.col("unique_key").isNotNull()).select(
        *_PLACE, F.col("unique_key").alias("key"), F.lit("unique_key").alias("kind")
    )
    return of_business.unionByName(of_client).withColumn("key_hash", F.crc32("key")).select(*MESSAGE_KEYS.names)


def to_totals(keys: DataFrame) -> DataFrame:
    """Count the rows of a table of keys, and add their hashes.

    >>> keys = spark.sql('''
    ...     select 0L as key_hash, key, 'key' as kind, 'a' as broker, 0L as physical_offset, 'orders' as topic,
    ...         timestamp'2026-11-20 12:00:00' as store_timestamp
    ...     from values ('order-1'), ('order-2') as k(key)''')
    >>> to_totals(keys).show()
    +----+--------------------+
    |rows|            checksum|
    +----+--------------------+
    |   2|-4722335535151995865|
    +----+--------------------+
    <BLANKLINE>
    >>> to_totals(keys).collect() == to_totals(keys.orderBy(F.desc("key"))).collect()
    True

    Args:
        keys: a table of `MESSAGE_KEYS`.

    Returns:
        `rows` and `checksum`, a sum modulo 2^64: one row, the same for the same rows in any order. The checksum is null
        if there are no rows.
    """
    hashed = keys.select(F.xxhash64(*MESSAGE_KEYS.names).alias("hash"))
    return hashed.agg(F.count("*").alias("rows"), wrapped_sum("hash").alias("checksum"))


def compare_keys(expected: DataFrame, found: DataFrame) -> DataFrame:
    """List the rows that only one of two tables of keys has, or that one has more often.

    >>> keys = spark.sql('''
    ...     select 0L as key_hash, key, 'key' as kind, 'a' as broker, 0L as physical_offset, 'orders' as topic,
    ...         timestamp'2026-11-20 12:00:00' as store_timestamp
    ...     from values ('order-1'), ('order-2'), ('order-3') as k(key)''')
    >>> twice = keys.where("key = 'order-3'").unionByName(keys.where("key != 'order-1'"))
    >>> compare_keys(keys, twice).select("key", "difference").orderBy("key").show()
    +-------+----------+
    |    key|difference|
    +-------+----------+
    |order-1|   missing|
    |order-3|unexpected|
    +-------+----------+
    <BLANKLINE>

    Args:
        expected: a table of `MESSAGE_KEYS` with the expected rows.
        found: a table of `MESSAGE_KEYS` to compare with it.

    Returns:
        The columns of `MESSAGE_KEYS`, and `difference`: "missing" if `found` has fewer of these rows, "unexpected" if
        it has more. One row per row that differs.
    """
    counted = (
        expected.select(*MESSAGE_KEYS.names, F.lit(1).alias("count"))
        .unionByName(found.select(*MESSAGE_KEYS.names, F.lit(-1).alias("count")))
        .groupBy(*MESSAGE_KEYS.names)
        .agg(F.sum("count").alias("count"))
    )
    kind = F.when(F.col("count") > 0, "missing").otherwise("unexpected").alias(DIFFERENCE)
    return counted.where(F.col("count") != 0).select(*MESSAGE_KEYS.names, kind)
