"""Creates entry 0 of a table's log again; it defines the columns and adds no file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from deltalake import DeltaTable, Schema

from commitlake.connectors.lake.follower import FOLLOWING
from commitlake.connectors.lake.log_files import entry_name
from commitlake.connectors.lake.log_names import LOG
from commitlake.connectors.lake.snapshot_tables import SNAPSHOT_TABLES
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.consumptions import CONSUMPTIONS
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.message_keys import MESSAGE_KEYS
from commitlake.schemas.tables.messages import MESSAGES, PARTITION_COLUMNS
from commitlake.schemas.tables.replay_messages import REPLAY_MESSAGES
from commitlake.schemas.tables.replay_rows import REPLAY_ROWS
from commitlake.schemas.tables.replays import REPLAYS

SCHEMAS: dict[str, Columns] = {
    "messages": MESSAGES,
    "message_keys": MESSAGE_KEYS,
    "edges": EDGES,
    "archive_runs": ARCHIVE_RUNS,
    "consumptions": CONSUMPTIONS,
    **FOLLOWING,
    **SNAPSHOT_TABLES,
    "replays": REPLAYS,
    "replay_messages": REPLAY_MESSAGES,
    "replay_rows": REPLAY_ROWS,
}
"""Schemas of the tables by name."""
_ID = re.compile(rb'"id\\?":\\?"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})')


def create_table(folder: Path, table: str) -> DeltaTable:
    """Create an empty table of the lake in a folder."""
    partitions = list(PARTITION_COLUMNS) if table == "messages" else []
    return DeltaTable.create(str(folder), Schema.from_json(SCHEMAS[table].json()), partition_by=partitions)


def first_entry(table: str, damaged: bytes = b"") -> bytes:
    """Return entry 0 of a table.

    Args:
        table: name of the table.
        damaged: remains of the damaged entry. If they hold the table's id, by which readers that follow it know it, it
            is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        create_table(Path(folder), table)
        entry = (Path(folder) / LOG / entry_name(0)).read_bytes()
    known = _ID.search(damaged)
    made = _ID.search(entry)
    return entry.replace(made[1], known[1]) if known and made else entry
