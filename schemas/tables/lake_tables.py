"""Declarations of all tables of a lake, for code that reads, compacts, audits or repairs every table.

The columns of a table are a constant of its name in a module of this package, which is imported when they are first
needed, because `query` must start fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commitlake.schemas.tables.columns import Columns


class RowOrigin(StrEnum):
    """Source of a table's rows: the job that adds them, or the table from which they are computed."""

    ARCHIVE = "archive"
    """An archive run commits them: the table `messages`."""
    COMMITS = "commits"
    """An archive run writes them, and its commit of `messages` names the files."""
    MESSAGES = "messages"
    """They are computed from the rows or commits of `messages`."""
    COMPUTED = "computed"
    """`archive --backfill` computes them from other tables; runs that archive do not."""
    SNAPSHOTS = "snapshots"
    """Snapshots of consumer offsets add them."""
    CONSUME_LOGS = "consume_logs"
    """Archive runs add them, from the stores' own logs of deliveries."""
    REPLAYS = "replays"
    """`replay` adds them while it sends messages; they cannot be computed from other tables."""
    ERASURES = "erasures"
    """`erase` adds them; they cannot be computed from other tables."""
    TOPICS = "topics"
    """`topics` adds them, from the bodies of messages."""
    EVIDENCE = "evidence"
    """Jobs with signed evidence add them."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of a lake.

    Attributes:
        name: its name, and that of its folder.
        origin: source of the rows.
        module: the module of this package with its columns.
        comment: description of the content, for catalogs.
        sort_columns: columns by which the rows of a compacted file are sorted; none if they keep the order of writing.
        partitions: columns by which its files are partitioned.
        key: columns that identify a row; in a table of snapshots, the columns that identify the subject of the
            snapshot. None if no code needs them.
        query_order: columns by which `query` sorts the rows, and that decide between equal values of `--order-by`.
    """

    name: str
    origin: RowOrigin
    module: str
    comment: str
    sort_columns: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    query_order: tuple[str, ...] = field(kw_only=True)

    @property
    def columns(self) -> Columns:
        """Columns of the table, with types and comments."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        columns: Columns = getattr(module, self.name.upper())
        return columns


_TABLES = (
    LakeTable(
        "messages",
        RowOrigin.ARCHIVE,
        "messages",
        "Table with one row per message",
        ("topic", "queue_id", "queue_offset"),
        ("store_date",),
        query_order=("store_timestamp", "broker", "physical_offset"),
    ),
    LakeTable(
        "quarantine",
        RowOrigin.COMMITS,
        "archive_runs",
        "Table of damaged ranges of logs",
        query_order=("broker", "start_offset"),
    ),
    LakeTable(
        "gaps",
        RowOrigin.COMMITS,
        "archive_runs",
        "Table of missing ranges of logs",
        query_order=("broker", "start_offset"),
    ),
    LakeTable(
        "message_keys",
        RowOrigin.MESSAGES,
        "messages",
        "Table of the places of messages by business key",
        ("key_hash",),
        query_order=("key_hash", "key", "store_timestamp"),
    ),
    LakeTable(
        "edges",
        RowOrigin.MESSAGES,
        "edges",
        "Table of the steps of each message through brokers and clients",
        ("node_hash",),
        query_order=(
            "event_timestamp",
            "node",
            "side",
            "kind",
            "from_broker",
            "from_physical_offset",
            "evidence_broker",
            "evidence_physical_offset",
            "evidence_entry",
        ),
    ),
    LakeTable(
        "profiles",
        RowOrigin.COMMITS,
        "profile",
        "Table of counts and checksums of archived messages, by topic, queue and window",
        query_order=("broker", "topic", "queue_id", "window_start"),
    ),
    LakeTable(
        "quality_results",
        RowOrigin.COMMITS,
        "archive_runs",
        "Table of the results of each run's expectations",
        query_order=("judged_at", "suite", "expectation"),
    ),
    LakeTable(
        "store_config",
        RowOrigin.COMMITS,
        "archive_runs",
        "Table of the stores' settings over time",
        query_order=("broker", "kind", "name", "recorded_at"),
    ),
    LakeTable(
        "consumer_offsets",
        RowOrigin.SNAPSHOTS,
        "offset_snapshots",
        "Table of group offsets over time",
        key=("broker", "kind", "group", "topic", "queue_id"),
        query_order=("as_of", "broker", "kind", "group", "topic", "queue_id"),
    ),
    LakeTable(
        "subscriptions",
        RowOrigin.SNAPSHOTS,
        "offset_snapshots",
        "Table of the groups' subscriptions over time",
        key=("broker", "source", "group", "topic"),
        query_order=("as_of", "broker", "source", "group", "topic"),
    ),
    LakeTable(
        "consumptions",
        RowOrigin.CONSUME_LOGS,
        "edges",
        "Table of deliveries to applications, from consume logs of JMQ stores",
        query_order=("broker", "consume_offset"),
    ),
    LakeTable(
        "topic_minutes",
        RowOrigin.COMMITS,
        "topic_minutes",
        "Table of messages counted by topic, queue, tag, kind and minute",
        ("topic", "minute"),
        query_order=("minute", "broker", "topic", "queue_id", "tag", "other_tags", "kind"),
    ),
    LakeTable(
        "lag_minutes",
        RowOrigin.COMPUTED,
        "lag_minutes",
        "Table of the lag of consumer groups by topic, queue and minute",
        ("within_hour", "minute", "group", "topic", "queue_id"),
        key=("broker", "kind", "group", "topic", "queue_id", "broadcasts", "minute"),
        query_order=("minute", "broker", "kind", "group", "topic", "queue_id", "broadcasts"),
    ),
    LakeTable(
        "archive_runs",
        RowOrigin.MESSAGES,
        "archive_runs",
        "Table with one row per finished run",
        query_order=("sequence",),
    ),
    LakeTable(
        "replays",
        RowOrigin.REPLAYS,
        "replays",
        "Table of the events of each replay",
        query_order=("at", "replay_id", "event"),
    ),
    LakeTable(
        "replay_messages",
        RowOrigin.REPLAYS,
        "replays",
        "Table of the outcome of each replayed message",
        query_order=("replay_id", "broker", "physical_offset"),
    ),
    LakeTable(
        "replay_rows",
        RowOrigin.REPLAYS,
        "replays",
        "Table of messages that replays change or copy",
        query_order=("replay_id", "broker", "physical_offset"),
    ),
    LakeTable(
        "erasures",
        RowOrigin.ERASURES,
        "erasures",
        "Table of erasures",
        key=("number", "erasure_id", "event", "at", "broker", "physical_offset"),
        query_order=("number", "at", "event", "broker", "physical_offset"),
    ),
    LakeTable(
        "topic_misfits",
        RowOrigin.TOPICS,
        "topics",
        "Table of messages that do not fit the schema of their topic",
        query_order=("store_timestamp", "broker", "physical_offset"),
    ),
    LakeTable(
        "topic_schemas",
        RowOrigin.TOPICS,
        "topics",
        "Table of the schemas of the tables of topics over time",
        key=("topic_table", "number"),
        query_order=("topic_table", "number"),
    ),
    LakeTable(
        "evidence",
        RowOrigin.EVIDENCE,
        "archive_runs",
        "Table of signed documents about runs, audits and erasures",
        key=("number", "document"),
        query_order=("number", "at", "document"),
    ),
)
LAKE_TABLES: Mapping[str, LakeTable] = {table.name: table for table in _TABLES}
"""All tables, by name."""


def tables_with_origin(*origins: RowOrigin) -> tuple[str, ...]:
    """Return the names of the tables whose rows have one of the given origins."""
    return tuple(name for name, table in LAKE_TABLES.items() if table.origin in origins)


FOLLOWING = tables_with_origin(RowOrigin.COMMITS)
"""The tables whose files a commit of `messages` may name."""
SNAPSHOT_TABLES = tables_with_origin(RowOrigin.SNAPSHOTS)
"""The tables of earlier states of groups."""
