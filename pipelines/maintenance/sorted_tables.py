"""A lake's tables that are compacted, each with the columns that its rows are sorted by."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.schemas.tables.messages import SORT_COLUMNS
from commitlake.schemas.tables.topic_minutes import SORT_COLUMNS as MINUTES_SORT_COLUMNS

SORTED_TABLES: Mapping[str, tuple[str, ...]] = {
    "messages": SORT_COLUMNS,
    "quarantine": (),
    "gaps": (),
    "message_keys": ("key_hash",),
    "profiles": (),
    "quality_results": (),
    "store_config": (),
    "consumer_offsets": (),
    "subscriptions": (),
    "topic_minutes": MINUTES_SORT_COLUMNS,
    "archive_runs": (),
}
"""The tables of a lake, and the order of the rows in their files."""
