"""Small tables for the examples in docstrings of `pipelines.edges`: text to members, entries and op records, and back.

A table is written as lines of cells that are separated by spaces. The first line names the columns; `-` is null. A
column that is not written has a value that suits most examples: broker a, unique key K, no failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from commitlake.pipelines.edges.client_actions import ENTRIES
from commitlake.pipelines.edges.key_matching import LinkableRecords
from commitlake.pipelines.edges.lake_spans import BrokerSpan, BrokerSpans
from commitlake.pipelines.edges.links.transactions import OPS
from commitlake.pipelines.edges.step_records import MEMBERS

_ONE_DAY_US = 86_400_000_000
LAKE = BrokerSpans({"a": BrokerSpan(0, 10_000, 0, _ONE_DAY_US)})
"""A lake with one day of the broker a, from its log's start to offset 10,000."""
MONTH = BrokerSpans({"a": BrokerSpan(0, 10_000, 0, 30 * _ONE_DAY_US)})
"""The same with thirty days, so that steps of its beginning stay open no longer."""
EXPIRED = BrokerSpans({"a": BrokerSpan(0, 10_000, 0, _ONE_DAY_US)}, has_expired=True)
"""The lake after `maintain` has dropped messages of earlier days."""
_NULL = "-"
_TRUE = "yes"
_USUAL: Mapping[str, str] = {"broker": "a", "unique_key": "K", "attempt": "0", "by_timer": "no", "by_client": "no"}
_SHOWN = ("kind", "from", "to", "outcome", "absent_reason")


def parse_members(text: str) -> LinkableRecords:
    """Parse a text table into records to link; each record's store time in microseconds equals its physical offset.

    Args:
        text: table with columns of `MEMBERS`.
    """
    rows = [{**row, "store_timestamp": row["physical_offset"]} for row in _parse_rows(text)]
    return LinkableRecords(_to_table(rows, MEMBERS))


def parse_entries(text: str) -> pa.Table:
    """Parse a text table, with columns of `ENTRIES`, into trace entries."""
    return _to_table(_parse_rows(text), ENTRIES)


def parse_ops(text: str) -> pa.Table:
    """Parse a text table, with columns of `OPS`, into op records."""
    return _to_table(_parse_rows(text), OPS)


def print_steps(steps: pa.Table | Iterable[pa.Table], *more: str) -> None:
    """Print edges as a table: their kinds, the physical offsets of both ends, outcomes and reasons of absent ends.

    Args:
        steps: one table of `STEPS`, or several.
        more: further columns to print.
    """
    tables = [steps] if isinstance(steps, pa.Table) else list(steps)
    names = [*_SHOWN, *more]
    lines = [names]
    for step in (row for table in tables for row in table.to_pylist()):
        ends = {end: step[f"{end}_physical_offset"] for end in ("from", "to")}
        lines.append([_NULL if (cell := {**step, **ends}[name]) is None else str(cell) for name in names])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _parse_rows(text: str) -> list[dict[str, str]]:
    names, *lines = (line.split() for line in text.strip().splitlines())
    return [{**_USUAL, **dict(zip(names, line, strict=True))} for line in lines]


def _to_table(rows: list[dict[str, str]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([_parse_cell(row.get(f.name, _NULL), f.type) for row in rows], f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _parse_cell(cell: str, data_type: pa.DataType) -> str | int | bool | None:
    if cell == _NULL:
        return None
    if pa.types.is_string(data_type):
        return cell
    return cell == _TRUE if pa.types.is_boolean(data_type) else int(cell)
