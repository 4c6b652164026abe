"""The rows of the sources `consumequeue` and `indexfile`, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.index_entries.entry_options import (
    IndexContent,
    IndexFileOptions,
    QueueOptions,
)
from commitlake.connectors.formats.index_entries.index_file_parts import plan_index_files
from commitlake.connectors.formats.index_entries.index_rows import read_index_parts
from commitlake.connectors.formats.index_entries.queue_file_parts import plan_queues
from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts
from commitlake.schemas.tables.index_entries import INDEX_ENTRIES, INDEX_HEADERS, INDEX_SLOTS, QUEUE_ENTRIES

Rows = list[dict[str, Any]]
_TABLES = {
    IndexContent.ENTRIES: INDEX_ENTRIES,
    IndexContent.SLOTS: INDEX_SLOTS,
    IndexContent.HEADERS: INDEX_HEADERS,
}


def _given(root: Path | str, options: dict[str, object]) -> dict[str, str]:
    return {"path": str(root), **{name: str(value) for name, value in options.items()}}


def read_queue_rows(root: Path | str, **given: object) -> Rows:
    """Return the rows of `consumequeue` for these options."""
    options = QueueOptions.parse(_given(root, given))
    schema, filters = arrow_schema(QUEUE_ENTRIES), options.to_read_filters
    return [
        row
        for parts in plan_queues(options, options.to_read_filters)
        for batch in read_queue_parts(parts, schema, filters, options.mode)
        for row in batch.to_pylist()
    ]


def read_index_rows(root: Path | str, **given: object) -> Rows:
    """Return the rows of `indexfile` for these options."""
    options = IndexFileOptions.parse(_given(root, given))
    schema, filters = arrow_schema(_TABLES[options.content]), options.to_read_filters
    return [
        row
        for parts in plan_index_files(options, filters)
        for batch in read_index_parts(parts, schema, filters, options)
        for row in batch.to_pylist()
    ]


def with_places_of(root: Path | str, rows: Rows) -> Rows:
    """Return rows with paths of bad ranges relative to the store, for a comparison with a copy."""
    for row in rows:
        if row.get("_corrupt_record"):
            row["_corrupt_record"]["file"] = row["_corrupt_record"]["file"].removeprefix(f"{root}/")
    return rows
