"""What any table of messages holds, window by window, and where two of them differ first.

The columns are `AUDIT` of `schemas.tables.profile`, and the numbers those of a run's own profile: rows of the source,
of `messages`, of HBase and the rows that an archive's tasks saw give one and the same, if they are the same messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.row_hash import lake_hash, row_hash
from commitlake.schemas.tables.profile import AUDIT, CHECKSUM_COLUMNS, KEY_COLUMNS, OPTIONAL_CHECKSUMS, WINDOW_SECONDS

FIGURES = tuple(name for name in AUDIT.names if name not in KEY_COLUMNS)
"""The columns of `AUDIT` beside its key."""
DIFFERENCE = "difference"
DIFFERENT_COLUMNS = "different_columns"
_LOW = 0xFFFFFFFF


def to_profile(messages: DataFrame) -> DataFrame:
    """Profile messages.

    Args:
        messages: at least `broker`, `topic`, `queue_id`, `queue_offset`, `physical_offset`, `size`, `body_size`,
            `body_crc` and `store_timestamp`, as in `messages`; rows without a size, which are bad ranges, are left out.
            The checksums of `OPTIONAL_CHECKSUMS` are null where a column of theirs is not there.

    Returns:
        A table of `AUDIT`: one row per broker, topic, queue and window. Counts and sums are never null; an extreme is
        null where all its values are.
    """
    hashed = messages.where(F.col("size").isNotNull()).select(
        *(F.col(name) for name in ("broker", "topic", "queue_id")),
        _window_start().alias("window_start"),
        *(F.col(name) for name in ("size", "body_size", "queue_offset", "physical_offset", "store_timestamp")),
        _row_hash().alias("checksum"),
        row_hash(messages.schema).alias("row_checksum"),
        lake_hash(messages.schema).alias("lake_checksum"),
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
        .to(AUDIT)
    )


def combine_profiles(profiles: DataFrame) -> DataFrame:
    """Put the parts of windows together that several runs took.

    Args:
        profiles: at least `AUDIT`, as in `profiles`, or without `OPTIONAL_CHECKSUMS`, as earlier versions wrote it; a
            window may have any number of rows.

    Returns:
        A table of `AUDIT`: one row per broker, topic, queue and window. An optional checksum is null where one of the
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
        .to(AUDIT)
    )


def compare_profiles(expected: DataFrame, found: DataFrame, *, columns: Sequence[str] = FIGURES) -> DataFrame:
    """Windows in which two profiles differ, in the order in which to look at them.

    Args:
        expected: a table of `AUDIT`, a row per window; what should be there.
        found: another, or one with some of the columns only.
        columns: what to compare; what a side has no column of must not be named.

    Returns:
        The key's columns; `difference`, which is "missing" where only `expected` has the window, "unexpected" where
        only `found` has it, else "different"; `different_columns`, an array of names; and for each compared column
        `expected_…` and `found_…`. One row per window that differs, by broker, topic, queue and window, those without
        a time first. Empty where the two are the same.
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


def _differs(name: str, expected: Column, found: Column) -> Column:
    """Whether two figures differ; what one side does not know is no difference in an optional checksum."""
    differs = ~expected.eqNullSafe(found)
    return differs & expected.isNotNull() & found.isNotNull() if name in OPTIONAL_CHECKSUMS else differs


def _marked(profile: DataFrame, columns: Sequence[str]) -> DataFrame:
    return profile.select(*KEY_COLUMNS, *columns, F.lit(True).alias("there"))


def _same_key() -> Column:
    """Keys are equal where both are null, too; said so that Spark joins by sorting or hashing, not by trying all."""
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
    """The sum modulo 2^64, or null where one of the values is null."""
    return F.when(F.count_if(F.col(name).isNull()) == 0, wrapped_sum(name))


def wrapped_sum(name: str) -> Column:
    """The sum modulo 2^64: `sum` itself fails on an overflow, so that the halves are summed, and put together."""
    value = F.col(name)
    low = F.sum(value.bitwiseAND(F.lit(_LOW)))
    high = F.sum(F.shiftright(value, 32)) + F.shiftright(low, 32)
    return F.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(F.lit(_LOW)))
