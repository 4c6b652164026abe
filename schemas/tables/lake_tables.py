"""Registry of the lake's tables, for code that reads, compacts, audits or repairs all of them.

The columns of a table are constants of its name in the modules of this package. This module imports none of them,
because `query` must start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Origin(StrEnum):
    """The origin of a table's rows."""

    ARCHIVE = "archive"
    """An archive run commits them: the table `messages`."""
    COMMITS = "commits"
    """An archive run writes them, and its commit of `messages` names the files."""
    MESSAGES = "messages"
    """They are computed from the rows or commits of `messages`."""
    SNAPSHOTS = "snapshots"
    """Snapshots of consumer offsets add them."""
    CONSUME_LOGS = "consume_logs"
    """Archive runs add them, from the stores' own logs of deliveries."""
    REPLAYS = "replays"
    """`replay` adds them while it sends messages; they cannot be computed from other tables."""
    ERASURES = "erasures"
    """`erase` adds them; they cannot be computed from other tables."""
    EVIDENCE = "evidence"
    """Jobs with signed evidence add them."""


class LakeTable(NamedTuple):
    """A table of a lake.

    Attributes:
        origin: where its rows come from.
        comment: what it has, as a catalog shows it.
        sort_columns: columns by which the rows of a compacted file are sorted; none if they keep the order of writing.
    """

    origin: Origin
    comment: str
    sort_columns: tuple[str, ...] = ()


LAKE_TABLES: Mapping[str, LakeTable] = {
    "messages": LakeTable(Origin.ARCHIVE, "Table with one row per message", ("topic", "queue_id", "queue_offset")),
    "quarantine": LakeTable(Origin.COMMITS, "Table of damaged ranges of logs"),
    "gaps": LakeTable(Origin.COMMITS, "Table of missing ranges of logs"),
    "message_keys": LakeTable(Origin.MESSAGES, "Table of the places of messages by business key", ("key_hash",)),
    "edges": LakeTable(
        Origin.MESSAGES, "Table of the steps of each message through brokers and clients", ("node_hash",)
    ),
    "profiles": LakeTable(
        Origin.COMMITS, "Table of counts and checksums of archived messages, by topic, queue and window"
    ),
    "quality_results": LakeTable(Origin.COMMITS, "Table of the results of each run's expectations"),
    "store_config": LakeTable(Origin.COMMITS, "Table of the stores' settings over time"),
    "consumer_offsets": LakeTable(Origin.SNAPSHOTS, "Table of group offsets over time"),
    "subscriptions": LakeTable(Origin.SNAPSHOTS, "Table of the groups' subscriptions over time"),
    "consumptions": LakeTable(
        Origin.CONSUME_LOGS, "Table of deliveries to applications, from consume logs of JMQ stores"
    ),
    "topic_minutes": LakeTable(
        Origin.COMMITS, "Table of messages counted by topic, queue, tag, kind and minute", ("topic", "minute")
    ),
    "archive_runs": LakeTable(Origin.MESSAGES, "Table with one row per finished run"),
    "replays": LakeTable(Origin.REPLAYS, "Table of the events of each replay"),
    "replay_messages": LakeTable(Origin.REPLAYS, "Table of the outcome of each replayed message"),
    "replay_rows": LakeTable(Origin.REPLAYS, "Table of messages that replays change or copy"),
    "erasures": LakeTable(Origin.ERASURES, "Table of erasures"),
    "evidence": LakeTable(Origin.EVIDENCE, "Table of signed documents about runs, audits and erasures"),
}
"""All tables, by name."""


def tables_of(*origins: Origin) -> tuple[str, ...]:
    """Return the names of the tables whose rows have one of these origins."""
    return tuple(name for name, table in LAKE_TABLES.items() if table.origin in origins)
