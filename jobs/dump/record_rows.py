"""The rows that `dump` prints as JSON lines, and its final sentence."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from commitlake.connectors.formats.rocketmq.indexes import walk_index_files
from commitlake.connectors.reading.decoding.bodies import decompress_by_sys_flag
from commitlake.connectors.reading.errors import BodyError
from commitlake.connectors.reading.files.store_files import open_store_files, store_folder_of_log
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.reading.uncompiled_records import FoundRecord, walk_store
from commitlake.schemas.layouts.rocketmq.indexfile import Geometry
from commitlake.schemas.layouts.rocketmq.scan import SpanKind

Row = dict[str, object]


@dataclass(slots=True)
class DumpReport:
    """Counts and findings of a dump, updated while it runs.

    Attributes:
        records: number of printed records.
        damage: bad ranges before the log's end, as sentences.
        unreadable: number of bodies that cannot be decompressed.
        last: description of the log's end.
    """

    records: int = 0
    damage: list[str] = field(default_factory=list)
    unreadable: int = 0
    last: FoundRecord | None = None


def dump_records(store: Store, segment_size_bytes: int, body_format: str, report: DumpReport) -> Iterator[Row]:
    """Yield one row per record, in physical order.

    Args:
        store: a store from `find_stores`.
        segment_size_bytes: size of its segments.
        body_format: base64, text or none.
        report: receives counts and findings.
    """
    for found in walk_store(store, segment_size_bytes):
        if report.last is not None and report.last.span.kind is SpanKind.FAULT:
            report.damage.append(describe_damage(report.last))
        report.last = found
        if found.message is not None:
            report.records += 1
            yield record_row(found.message, store, found.segment, body_format, report)


def record_row(message: Any, store: Store, segment: str, body_format: str, report: DumpReport) -> Row:
    """Return a record as `dump` prints it; `body_error` says why a body cannot be decompressed."""
    row: Row = {**store.format.record_rules.row_of(message, store.broker), "segment": segment}
    if body_format == "base64":
        row["body"] = base64.b64encode(message.body).decode()
    elif body_format == "text":
        try:
            row["body"] = decompress_by_sys_flag(message.body, message.sys_flag).decode("utf-8", "replace")
        except BodyError as error:
            row |= {"body": None, "body_error": str(error)}
            report.unreadable += 1
    return row


def describe_damage(damaged_record: FoundRecord) -> str:
    """Describe a damaged range in a sentence."""
    span = damaged_record.span
    return (
        f"segment {damaged_record.segment}, physical offset {span.start} to {span.end} ({span.end - span.start} "
        "bytes): "
        f"{span.fault}: expected {span.expected}, found {span.found}"
    )


def describe_dump_end(report: DumpReport) -> str:
    """Return a sentence on where and why the dump ended."""
    last = report.last
    if last is None:
        return "stopped at physical offset 0: the segments are empty files"
    span = last.span
    match span.kind:
        case SpanKind.UNWRITTEN:
            why = f"{span.start}: only zeros follow"
        case SpanKind.BLANK:
            why = f"{span.end}: the segment is full (BLANK), and there is no next one"
        case SpanKind.FAULT:
            why = f"{span.start}: torn or damaged end, {describe_damage(last)}"
        case _:
            why = f"{span.end}: the file ends after a whole record"
    return f"stopped in segment {last.segment} at physical offset {why}"


def dump_queues(
    store: Store, topics: Sequence[str], queue_ids: Sequence[int], report_damage: Callable[[str], None]
) -> Iterator[Row]:
    """Yield one row per entry of the store's queues.

    Args:
        store: a store from `find_stores`.
        topics: return only these topics; all if empty.
        queue_ids: return only queues with these ids; all if empty.
        report_damage: receives a sentence about each invalid entry, if the format's entries can be checked.
    """
    files = open_store_files(store_folder_of_log(store.root))
    for topic, queue_id in product(dict.fromkeys(topics) or [None], dict.fromkeys(queue_ids) or [None]):
        yield from store.format.queues.walk_queue_entries(files, topic, queue_id, report_damage)


def dump_index_files(store: Store, geometry: Geometry | None) -> Iterator[Row]:
    """Yield one row per entry of the store's index files."""
    for found in walk_index_files(open_store_files(store_folder_of_log(store.root)), geometry):
        yield {
            "file": found.file,
            "entry": found.number,
            "slot": found.slot,
            "key_hash": found.entry.key_hash,
            "physical_offset": found.entry.physical_offset,
            "store_timestamp": found.store_timestamp,
            "previous_entry": found.entry.previous_entry,
        }
