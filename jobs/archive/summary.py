"""The summary of an archive run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from commitlake.connectors.reading.snapshots import StoreRange, TailKind
from commitlake.jobs.arguments.sizes import size_text
from commitlake.pipelines.archive.run import Result
from commitlake.pipelines.archive.run_page import commit_numbers_text
from commitlake.schemas.formatted_counts import format_count

_MANY_STORES = 12
_ROW_NAMES = {"message_keys": "message key", "consumptions": "consume record"}
"""Names for rows of tables; rows of others are named by their table."""


def store_summary_lines(store_ranges: Mapping[str, StoreRange]) -> list[str]:
    """Return a line for each store with new messages or an incomplete last record; a long list is cut."""
    shown = {name: part for name, part in store_ranges.items() if part.size or part.tail is TailKind.TORN}
    lines = [_store_line(name, part) for name, part in list(shown.items())[:_MANY_STORES]]
    if len(shown) > _MANY_STORES:
        lines.append(f"  and {format_count(len(shown) - _MANY_STORES, 'more store')}")
    return lines


def _store_line(name: str, store_range: StoreRange) -> str:
    line = f"  {name}: {store_range.start} to {store_range.end} ({size_text(store_range.size)})"
    if store_range.tail is TailKind.TORN:
        line += f"; the last {store_range.tail_bytes} bytes are an incomplete record, left for the next run"
    return line


def summary_lines(result: Result) -> list[str]:
    """Return the lines of a run's summary."""
    lines = [
        f"run {sequence}, which another process had left unfinished, is now finished" for sequence in result.recovered
    ]
    stores = store_summary_lines(result.ranges)
    after = _other_run_lines(result)
    if not result.sequence:
        if not result.bytes_of_others:
            stores_text = format_count(len(result.ranges), "store")
            lines.append(f"No new messages in {stores_text}")
        return [*lines, *stores, *_note_lines(result), *_derived_table_lines(result), *after]
    rate = f"{result.messages / result.seconds:,.0f} messages/s, {size_text(result.bytes / result.seconds)}/s"
    done = (
        f"{format_count(result.messages, 'message')} from {size_text(result.bytes)} in {result.seconds:.1f} s ({rate})"
    )
    sizes = f"  in the lake: metadata {size_text(result.metadata_bytes)}, bodies {size_text(result.pack_bytes)}"
    lines += [f"{commit_numbers_text([*result.earlier, result.sequence])}: {done}", sizes, *stores]
    lines += [*_note_lines(result), *_derived_table_lines(result)]
    if result.hbase:
        lines.append(f"  {format_count(result.hbase, 'message')} written to HBase ({result.hbase_seconds:.1f} s)")
    lines += [f"  {warning}" for warning in result.warnings]
    return [*lines, *after, f"  verdict: {result.verdict.text}"]


def _note_lines(result: Result) -> list[str]:
    return [f"  {note}" for note in (*result.notes, *result.problems)]


def _derived_table_lines(result: Result) -> Iterator[str]:
    for update in result.updates:
        if update.rows:
            name = _ROW_NAMES.get(update.table)
            count = format_count(update.rows, name or "row")
            seconds = f" ({update.seconds:.1f} s)" if update.seconds else ""
            yield f"  {count}{'' if name else f' of {update.table}'}{seconds}"


def _other_run_lines(result: Result) -> list[str]:
    """Return lines about concurrent runs: data that they archived, and tables that this run could not update."""
    lines = []
    if result.bytes_of_others:
        lines.append(f"{size_text(result.bytes_of_others)} of new log were archived by another run meanwhile")
    lines += [
        f"{name} is not up to date yet, because other runs were writing to it: the next run adds the rest"
        for name in result.unfinished_tables
    ]
    return lines
