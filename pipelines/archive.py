"""Rows of the source `commitlog` as rows of the lake's tables."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.tables.messages import CORRUPT_RECORD
from schemas.tables.quarantine import QUARANTINE


def has_message() -> Column:
    """Whether a row of the source is a message: a bad range has no size, a message with one bad value has."""
    return F.col("size").isNotNull()


def is_refused() -> Column:
    """Whether a row of the source is a bad range, or a message with a value that no column could hold."""
    return F.col(CORRUPT_RECORD.name).isNotNull()


def to_quarantine(source: DataFrame, *, sequence: int, parser_version: str) -> DataFrame:
    """One row per bad range, and per message with a value that no column could hold.

    Args:
        source: at least `broker` and `_corrupt_record`.
        sequence: number of the archive run.
        parser_version: version of what read the log.

    Returns:
        A table of `QUARANTINE`.
    """
    record = F.col(CORRUPT_RECORD.name)
    return (
        source.where(is_refused())
        .select(
            F.col("broker"),
            record["segment"].alias("segment"),
            record["start"].alias("start_offset"),
            record["end"].alias("end_offset"),
            record["reason"].alias("reason"),
            record["expected"].alias("expected"),
            record["found"].alias("found"),
            record["first_bytes"].alias("first_bytes"),
            F.lit(parser_version).alias("parser_version"),
            F.lit(sequence).cast("long").alias("sequence"),
        )
        .to(QUARANTINE)
    )
