"""Notes in the commits of a table on rows that repairs removed, so that the loss is reported once."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.log_history import read_history
from commitlake.connectors.lake.log_json import parse_json
from commitlake.pipelines.maintenance.table_files import METADATA_KEY
from commitlake.schemas.layouts.numbers import parse_int64

_LOST_ROWS = "lost_rows"


def repair_note(lost_rows: int) -> dict[str, str]:
    """Return the note of a commit that takes damaged files out of a table.

    Args:
        lost_rows: number of rows in these files.
    """
    return {"action": "repair", _LOST_ROWS: str(lost_rows)}


def count_lost_rows(table: DeltaTable) -> int:
    """Return the number of rows that repairs have removed from a table, as far back as its log goes."""
    return sum(_lost_rows(note.metadata) for note in read_history(table))


def _lost_rows(metadata: str | None) -> int:
    text = (read_note(metadata) or {}).get(_LOST_ROWS)
    return max(parse_int64(text) or 0, 0) if isinstance(text, str) else 0


def read_note(metadata: str | None) -> dict[str, Any] | None:
    """Return the note of a commit of maintain; None for the commit of another program."""
    try:
        document: Any = parse_json(metadata or "null")
    except ValueError:
        return None
    note = document.get(METADATA_KEY) if isinstance(document, dict) else None
    return note if isinstance(note, dict) else None
