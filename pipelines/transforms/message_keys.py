"""The keys of messages as rows of `message_keys`, and where two tables of them differ."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.profile import wrapped_sum
from commitlake.schemas.tables.message_keys import MESSAGE_KEYS

_PLACE = ("broker", "physical_offset", "topic", "store_timestamp")
DIFFERENCE = "difference"


def to_message_keys(messages: DataFrame) -> DataFrame:
    """List the keys of messages.

    Args:
        messages: at least `broker`, `physical_offset`, `topic`, `store_timestamp`, `keys` and `unique_key`.

    Returns:
        A table of `MESSAGE_KEYS`: one row per message and key; a key that a message has twice is one row.
    """
    of_business = messages.select(*_PLACE, F.explode(F.array_distinct("keys")).alias("key"), F.lit("key").alias("kind"))
    of_client = messages.where(F.col("unique_key").isNotNull()).select(
        *_PLACE, F.col("unique_key").alias("key"), F.lit("unique_key").alias("kind")
    )
    return of_business.unionByName(of_client).withColumn("key_hash", F.crc32("key")).select(*MESSAGE_KEYS.names)


def to_totals(keys: DataFrame) -> DataFrame:
    """Count the rows of a table of `MESSAGE_KEYS`, and sum up their hashes: one row, the same for the same rows."""
    hashed = keys.select(F.xxhash64(*MESSAGE_KEYS.names).alias("hash"))
    return hashed.agg(F.count("*").alias("rows"), wrapped_sum("hash").alias("checksum"))


def compare_keys(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Rows that only one of two tables of keys has, or has more often.

    Args:
        expected: a table of `MESSAGE_KEYS`; what should be there.
        found: another.

    Returns:
        The columns of `MESSAGE_KEYS`, and `difference`: "missing" where `found` has fewer of such rows, "unexpected"
        where it has more. One row per row that differs.
    """
    counted = (
        expected.select(*MESSAGE_KEYS.names, F.lit(1).alias("count"))
        .unionByName(found.select(*MESSAGE_KEYS.names, F.lit(-1).alias("count")))
        .groupBy(*MESSAGE_KEYS.names)
        .agg(F.sum("count").alias("count"))
    )
    kind = F.when(F.col("count") > 0, "missing").otherwise("unexpected").alias(DIFFERENCE)
    return counted.where(F.col("count") != 0).select(*MESSAGE_KEYS.names, kind)
