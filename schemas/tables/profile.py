"""`profiles`: one row per broker, topic, queue and 10-minute window of an archive run, with counts and checksums.

Key: (`run_id`, `broker`, `topic`, `queue_id`, `window_start`). If several runs archived messages of one window, each
has a row for it; merging the rows gives the values of the window. Before the commit, the suites in `schemas.quality`
check a run's profile. An audit compares it with the store, the tables and the packs.

`PROFILE` is the schema of the profile of one run or task, without `run_id`. `AUDIT` has the columns that can be
computed from any table with the messages' numbers, see `pipelines.audit.counts_by_window`.

Checksums are sums modulo 2^64 of a hash of each row, so they do not depend on the order of rows. The hash is Spark's
`xxhash64` of bigint values. `checksum` hashes physical_offset, queue_offset, size, body_crc and
unix_millis(store_timestamp). Each of `COLUMN_CHECKSUMS` hashes its columns: a text as its own `xxhash64`, a list as
that of the list, a map as two lists (keys and values), a timestamp in microseconds, a date in days, and a null as
`NULL_NUMBER`.
"""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns, ListOf

WINDOW_SECONDS = 600
"""Length of a window; windows begin at multiples of it since 1970, UTC."""
BORN_TOLERANCE_MS = 600_000
"""Time by which a producer's clock may be ahead of the broker's before the row violates a rule."""
MAX_RUNS = 1000
"""Largest number of ranges of queue offsets in a window; with more, they are null, and its parts count as separate."""
CHECKSUM_COLUMNS = ("physical_offset", "queue_offset", "size", "body_crc", "store_timestamp")
NULL_NUMBER = -(1 << 63)
"""Value of a null in the checksums of columns."""


@dataclass(frozen=True, slots=True)
class ColumnChecksum:
    """Column of the table `profiles` with a checksum of certain columns of `messages`.

    It is null in profiles written before the checksum existed, and where the rows lack one of its columns. Such windows
    are compared by the other checksums only.

    Attributes:
        name: name of the checksum's column in the profile.
        columns: the hashed columns, in this order; `a.b` is a field of a struct.
        comment: comment of the profile's column.
        required: a column that is null in rows of earlier versions; a window with such a row has no checksum. Empty
            if all versions wrote all columns.
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
        "checksum of all columns that come from the store; see the module's docstring",
    ),
    ColumnChecksum(
        "lake_checksum",
        (
            "body_ref.pack", "body_ref.frame_offset", "body_ref.frame_length", "body_ref.offset", "body_ref.length",
            "store_date",
        ),
        "checksum of the columns that only the lake has; see the module's docstring",
    ),
    ColumnChecksum(
        "format_checksum",
        ("broker", "physical_offset", "format"),
        "checksum of the rows' formats; null if a row has none; see the module's docstring",
        required="format",
    ),
    ColumnChecksum(
        "origin_checksum",
        ("broker", "physical_offset", "origin_topic", "producer_group"),
        "checksum of the rows' origins; null if a row has no origin_topic; see the module's docstring",
        required="origin_topic",
    ),
)  # fmt: skip
"""The checksums of all columns of `messages`.

New columns of `messages` get a separate checksum at the end, over the primary key and the new columns (one of which is
`required`), so that the other checksums stay comparable with older profiles.
"""


def _count_column(name: str, comment: str) -> Column:
    return Column(name, INT64, comment)


_KEY = [
    Column("broker", TEXT, "the store's name"),
    Column("topic", TEXT, "as in messages"),
    Column("queue_id", INT32, "as in messages"),
    Column("window_start", TIME, "start of the window, UTC; null for messages without a store_timestamp"),
]
_AMOUNTS = [
    _count_column("messages", "rows"),
    _count_column("bytes", "sum of size"),
    _count_column("body_bytes", "sum of body_size"),
    _count_column("checksum", "checksum of all rows in any order; see the module's docstring"),
]
_EXTREMES = [
    Column("first_queue_offset", INT64, "smallest queue offset"),
    Column("last_queue_offset", INT64, "largest queue offset"),
    Column("first_physical_offset", INT64, "smallest physical offset"),
    Column("last_physical_offset", INT64, "largest physical offset"),
    Column("min_store_timestamp", TIME, "earliest store_timestamp, UTC"),
    Column("max_store_timestamp", TIME, "latest store_timestamp, UTC"),
]
_MORE_EXTREMES = [
    Column("min_born_timestamp", TIME, "earliest born_timestamp, UTC"),
    Column("max_born_timestamp", TIME, "latest born_timestamp, UTC"),
    Column("min_size", INT64, "size of the smallest record, bytes"),
    Column("max_size", INT64, "size of the largest record, bytes"),
]
_NULLS = [
    _count_column("null_msg_id", "rows without an offset message id"),
    _count_column("null_unique_key", "rows without a client message id"),
    _count_column("null_keys", "rows without business keys"),
    _count_column("null_tags", "rows without a tag"),
    _count_column("null_born_timestamp", "rows without a producer's time"),
    _count_column("null_hosts", "rows without the producer's or the broker's host"),
    _count_column("null_properties", "rows whose properties cannot be parsed"),
    _count_column("null_body_ref", "rows with a body whose location is missing"),
]
_VIOLATIONS = [
    _count_column("negative_values", "rows with a negative offset, queue, size or count of retries"),
    _count_column("size_violations", "rows with an impossible size"),
    _count_column("body_size_violations", "rows with a body that does not fit in its record"),
    _count_column(
        "body_ref_violations", "rows whose place in a pack has another length than the body, or is outside its pack"
    ),
    _count_column(
        "born_after_store", f"rows with a store time more than {BORN_TOLERANCE_MS // 1000} s before their born time"
    ),
    _count_column("unknown_codecs", "rows with a body in an unknown codec"),
    _count_column("unknown_kinds", "rows of an unknown kind"),
]
_QUEUE = [
    _count_column("inner_batches", "rows that hold several messages (5.x batch queues)"),
    _count_column(
        "queue_offsets", "queue offsets used by the rows: one each, and for an inner batch one for each message"
    ),
    _count_column("duplicate_rows", "queue offsets used twice by one physical offset: duplicate rows"),
    _count_column("duplicate_offsets", "queue offsets used by several physical offsets"),
    _count_column("missing_offsets", "queue offsets that are missing between consecutive rows of the window"),
    _count_column("restarts", "times that the queue offset does not increase from one row of the window to the next"),
]
_CHECKSUMS = [_count_column(checksum.name, checksum.comment) for checksum in COLUMN_CHECKSUMS]
RUN = Columns(
    [
        Column("first_physical_offset", INT64, "physical offset of the first row"),
        Column("last_physical_offset", INT64, "physical offset of the last row"),
        Column("first_queue_offset", INT64, "queue offset of the first row"),
        Column("last_queue_offset", INT64, "queue offset of the last row; for an inner batch that of its last message"),
    ]
)
RUNS = Column(
    "queue_runs",
    ListOf(RUN),
    "ranges of consecutive queue offsets, in the log's order; null if there are too many",
)

PROFILE = Columns([*_KEY, *_AMOUNTS, *_EXTREMES, *_MORE_EXTREMES, *_NULLS, *_VIOLATIONS, *_QUEUE, RUNS, *_CHECKSUMS])
RUN_ID = Column("run_id", TEXT, "the archive run, as in archive_runs")
PROFILES = Columns([*PROFILE, RUN_ID])
KEY_COLUMNS = tuple(field.name for field in _KEY)
QUEUE_KEYS = ("broker", "topic", "queue_id")
"""The part of the key that identifies a queue."""
AUDIT = Columns([*_KEY, *_AMOUNTS, *_EXTREMES, *_CHECKSUMS])
FIGURES = tuple(name for name in AUDIT.names if name not in KEY_COLUMNS)
"""The columns of `AUDIT` without its key."""
OPTIONAL_CHECKSUMS = tuple(field.name for field in _CHECKSUMS)
"""The checksums that a profile may lack; they are compared if both sides have them."""
COUNT_COLUMNS = tuple(field.name for field in (*_NULLS, *_VIOLATIONS))
"""Columns that are added when two parts of a window are combined, besides `_AMOUNTS`."""
