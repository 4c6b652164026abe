"""`profiles`: one row per broker, topic, queue and 10-minute window of an archive run: what the run took there.

Key: (`run_id`, `broker`, `topic`, `queue_id`, `window_start`). A window that several runs took has a row of each;
    summed and put together they are the window's. The suites in `schemas.quality` judge it before the commit, and the
    audit compares it with what the store, the tables and the packs hold.

`PROFILE` is a run's own, or a task's: without `run_id`. `AUDIT` are the columns that any table with the messages'
numbers gives, see `pipelines.transforms.profile`.

Checksums are sums modulo 2^64 of a hash of each row, so that the order of rows does not matter. The hash is Spark's
`xxhash64` of numbers, all bigint. `checksum` hashes physical_offset, queue_offset, size, body_crc and
unix_millis(store_timestamp). Each of `COLUMN_CHECKSUMS` hashes its columns: a text counts as its own `xxhash64`, a list
as that of the list, a map as two lists, its keys and its values, a timestamp in microseconds, a date in days, and a
null as `NULL_NUMBER`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlake.schemas.tables.columns import column

WINDOW_SECONDS = 600
"""Length of a window; windows begin at multiples of it since 1970, UTC."""
BORN_TOLERANCE_MS = 600_000
"""How far a producer's clock may be ahead of the broker's before the row breaks a rule."""
MAX_RUNS = 1000
"""A window with more runs of queue offsets than these has null for them, and its parts are taken as apart."""
CHECKSUM_COLUMNS = ("physical_offset", "queue_offset", "size", "body_crc", "store_timestamp")
NULL_NUMBER = -(1 << 63)
"""What a null counts as in the checksums of columns."""


@dataclass(frozen=True, slots=True)
class ColumnChecksum:
    """A checksum of columns of `messages`.

    A profile has null for it where it was written before there was such a checksum, or where the rows lack one of the
    columns; such windows are compared by the other checksums alone.

    Attributes:
        name: the column of the profile.
        columns: what is hashed, in this order; `a.b` is a field of a struct.
        comment: for the profile's column.
        required: a column that is null in rows of earlier versions; a window with such a row has no checksum. Empty
            where all versions wrote all columns.
    """

    name: str
    columns: tuple[str, ...]
    comment: str
    required: str = ""


COLUMN_CHECKSUMS = (
    ColumnChecksum(
        "row_checksum",
        (
            "broker", "physical_offset", "size", "topic", "queue_id", "queue_offset", "msg_id", "unique_key", "keys",
            "tags", "kind", "born_timestamp", "store_timestamp", "born_host", "store_host", "sys_flag", "flag",
            "reconsume_times", "priority", "prepared_transaction_offset", "body_size", "body_crc", "body_codec",
            "properties",
        ),
        "of all that a store says of the rows; see the module's docstring",
    ),
    ColumnChecksum(
        "lake_checksum",
        (
            "body_ref.pack", "body_ref.frame_offset", "body_ref.frame_length", "body_ref.offset", "body_ref.length",
            "store_date",
        ),
        "of what only the lake says of the rows; see the module's docstring",
    ),
    ColumnChecksum(
        "format_checksum",
        ("broker", "physical_offset", "format"),
        "of the rows' formats; null where a row has none; see the module's docstring",
        required="format",
    ),
    ColumnChecksum(
        "origin_checksum",
        ("broker", "physical_offset", "origin_topic", "producer_group"),
        "of the rows' origins; null where a row has no origin_topic; see the module's docstring",
        required="origin_topic",
    ),
)  # fmt: skip
"""The checksums of all columns of `messages`. Columns that are added to `messages` get a checksum of their own at the
end, of the primary key and themselves (`required` is one of them): the others stay comparable with profiles that were
written before."""


def _count(name: str, comment: str) -> StructField:
    return column(name, LongType(), comment)


_KEY = [
    column("broker", StringType(), "the store's name"),
    column("topic", StringType(), "as in messages"),
    column("queue_id", IntegerType(), "as in messages"),
    column("window_start", TimestampType(), "UTC; of messages without a store_timestamp null"),
]
_AMOUNTS = [
    _count("messages", "rows"),
    _count("bytes", "sum of size"),
    _count("body_bytes", "sum of body_size"),
    _count("checksum", "of all rows, in any order; see the module's docstring"),
]
_EXTREMES = [
    column("first_queue_offset", LongType(), "the least"),
    column("last_queue_offset", LongType(), "the greatest"),
    column("first_physical_offset", LongType(), "the least"),
    column("last_physical_offset", LongType(), "the greatest"),
    column("min_store_timestamp", TimestampType(), "UTC"),
    column("max_store_timestamp", TimestampType(), "UTC"),
]
_MORE_EXTREMES = [
    column("min_born_timestamp", TimestampType(), "UTC"),
    column("max_born_timestamp", TimestampType(), "UTC"),
    column("min_size", LongType(), "bytes of the smallest record"),
    column("max_size", LongType(), "bytes of the largest record"),
]
_NULLS = [
    _count("null_msg_id", "rows without an offset message id"),
    _count("null_unique_key", "rows without a client message id"),
    _count("null_keys", "rows without business keys"),
    _count("null_tags", "rows without a tag"),
    _count("null_born_timestamp", "rows without a producer's time"),
    _count("null_hosts", "rows without the producer's or the broker's host"),
    _count("null_properties", "rows whose properties could not be read"),
    _count("null_body_ref", "rows with a body, of which the lake does not say where it is"),
]
_VIOLATIONS = [
    _count("negative_values", "rows with an offset, a queue, a size or a count of retries below 0"),
    _count("size_violations", "rows with a size that no record has"),
    _count("body_size_violations", "rows with a body that does not fit into its record"),
    _count(
        "body_ref_violations", "rows whose place in a pack is of another length than their body, or before its pack"
    ),
    _count("born_after_store", f"rows stored more than {BORN_TOLERANCE_MS // 1000} s before they were born"),
    _count("unknown_codecs", "rows with a body in no known codec"),
    _count("unknown_kinds", "rows of no known kind"),
]
_QUEUE = [
    _count("inner_batches", "rows that hold several messages (5.x batch queues)"),
    _count("queue_offsets", "queue offsets that the rows take up: one each, and an inner batch one for each message"),
    _count("duplicate_rows", "queue offsets taken up twice by one physical offset: rows that are there twice"),
    _count("duplicate_offsets", "queue offsets taken up by several physical offsets"),
    _count("missing_offsets", "queue offsets that are left out from one row of the window to the next"),
    _count("restarts", "times that queue offsets go back, or stay, from one row of the window to the next"),
]
_CHECKSUMS = [_count(checksum.name, checksum.comment) for checksum in COLUMN_CHECKSUMS]
RUN = StructType(
    [
        column("first_physical_offset", LongType(), "of its first row"),
        column("last_physical_offset", LongType(), "of its last row"),
        column("first_queue_offset", LongType(), "of its first row"),
        column("last_queue_offset", LongType(), "of its last row; an inner batch's last message"),
    ]
)
RUNS = column(
    "queue_runs",
    ArrayType(RUN, containsNull=False),
    "in the log's order, stretches in which each row's queue offset follows on the one before; null for too many",
)

PROFILE = StructType([*_KEY, *_AMOUNTS, *_EXTREMES, *_MORE_EXTREMES, *_NULLS, *_VIOLATIONS, *_QUEUE, RUNS, *_CHECKSUMS])
RUN_ID = column("run_id", StringType(), "the archive run, as in archive_runs")
PROFILES = StructType([*PROFILE, RUN_ID])
KEY_COLUMNS = tuple(field.name for field in _KEY)
AUDIT = StructType([*_KEY, *_AMOUNTS, *_EXTREMES, *_CHECKSUMS])
FIGURES = tuple(name for name in AUDIT.names if name not in KEY_COLUMNS)
"""The columns of `AUDIT` beside its key."""
OPTIONAL_CHECKSUMS = tuple(field.name for field in _CHECKSUMS)
"""The checksums that a profile may lack; they are compared where both sides have them."""
COUNT_COLUMNS = tuple(field.name for field in (*_NULLS, *_VIOLATIONS))
"""What adds up when two parts of a window are put together, besides `_AMOUNTS`."""
