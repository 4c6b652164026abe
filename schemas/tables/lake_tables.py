"""Registry of the lake's tables, for code that reads, compacts, audits or repairs all of them.

The columns of a table are in the module of its name. This module needs no Spark, because `query` must start fast.
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
        sort_columns: columns by which the rows of a compacted file are sorted; none if they keep the order of writing.
    """

    origin: Origin
    sort_columns: tuple[str, ...] = ()


LAKE_TABLES: Mapping[str, LakeTable] = {
    "messages": LakeTable(Origin.ARCHIVE, ("topic", "queue_id", "queue_offset")),
    "quarantine": LakeTable(Origin.COMMITS),
    "gaps": LakeTable(Origin.COMMITS),
    "message_keys": LakeTable(Origin.MESSAGES, ("key_hash",)),
    "edges": LakeTable(Origin.MESSAGES, ("node_hash",)),
    "profiles": LakeTable(Origin.COMMITS),
    "quality_results": LakeTable(Origin.COMMITS),
    "store_config": LakeTable(Origin.COMMITS),
    "consumer_offsets": LakeTable(Origin.SNAPSHOTS),
    "subscriptions": LakeTable(Origin.SNAPSHOTS),
    "consumptions": LakeTable(Origin.CONSUME_LOGS),
    "topic_minutes": LakeTable(Origin.COMMITS, ("topic", "minute")),
    "archive_runs": LakeTable(Origin.MESSAGES),
    "replays": LakeTable(Origin.REPLAYS),
    "replay_messages": LakeTable(Origin.REPLAYS),
    "replay_rows": LakeTable(Origin.REPLAYS),
    "erasures": LakeTable(Origin.ERASURES),
    "evidence": LakeTable(Origin.EVIDENCE),
}
"""All tables, by name."""


def tables_of(*origins: Origin) -> tuple[str, ...]:
    """Return the names of the tables whose rows have one of these origins."""
    return tuple(name for name, table in LAKE_TABLES.items() if table.origin in origins)
