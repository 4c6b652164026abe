"""Offsets of a stream in the form that Spark stores in its checkpoint for each micro-batch.

    {"version": 1, "stores": {"broker-a": {"offset": 1244, "record": {"offset": 1000, "size": 244, "digest": "9f…"}}}}

`offset` is the physical offset of the end of the last record that was read. `record` is that record, or at the start
the first one to be read, which identifies the store: a broker that was set up again under the same name has other
records there. The digest covers bytes that are written before the body, so that they are complete if the body is.

Spark stores the end of a micro-batch, and asks the source again for the start of a stream if its first one did not
finish; by then that may be another offset, because a segment was deleted. So a start is marked `initial`, and the first
end after it contains the start as `first`: the first micro-batch lies between these two, whenever it is planned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from commitlake.connectors.log_format.files import Segment
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.reading.stores import Store, segment_sizes
from commitlake.connectors.sources.stream_checkpoint import read_checkpoint
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, int_in_range

VERSION = 1
_DIGEST_SIZE = 8


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """Physical offset and hash of a record, by which a later micro-batch recognizes the store.

    Attributes:
        offset: physical offset of its first byte.
        size: size in bytes.
        digest: hexadecimal hash of its first bytes.
    """

    offset: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class StorePosition:
    """Position of a stream in one store: a physical offset, and a record near it that identifies the log.

    Attributes:
        offset: physical offset of the end of the data that was read.
        record: a record near the offset, mostly the last one before it; None if none is known yet.
    """

    offset: int
    record: KnownRecord | None = None


Positions = dict[str, StorePosition]
"""Positions by broker."""


def to_checkpoint(positions: Mapping[str, StorePosition]) -> dict[str, Any]:
    """Convert positions to the form that Spark stores; equal positions give equal text."""
    stores: dict[str, Any] = {}
    for broker in sorted(positions):
        position = positions[broker]
        stores[broker] = {"offset": position.offset}
        if position.record is not None:
            stores[broker]["record"] = asdict(position.record)
    return {"version": VERSION, "stores": stores}


def initial_checkpoint(positions: Mapping[str, StorePosition]) -> dict[str, Any]:
    """Return the start of a stream in the form that Spark stores."""
    return {**to_checkpoint(positions), "initial": True}


def next_checkpoint(start: Mapping[str, Any], end: Mapping[str, StorePosition]) -> dict[str, Any]:
    """Return the end of a micro-batch in the form that Spark stores; `start` itself if there is nothing new."""
    value = to_checkpoint(end)
    if value["stores"] == start["stores"]:
        return dict(start)
    return {**value, "first": start["stores"]} if start.get("initial") else value


def batch_positions(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Positions, Positions]:
    """Return the start and the end of the micro-batch between two stored offsets.

    Args:
        start: start that Spark passes; for a stream's first micro-batch it may be newer than the stored one.
        end: stored end.

    Raises:
        UsageError: if they are not valid checkpoints.
    """
    first = end.get("first")
    begin = start if first is None else {"version": end.get("version"), "stores": first}
    return from_checkpoint(begin), from_checkpoint(end)


def from_checkpoint(value: Mapping[str, Any]) -> Positions:
    """Parse the position in each store that Spark has stored for a stream.

    Raises:
        UsageError: if it is not a valid checkpoint.
    """
    return read_checkpoint(value, _parse_positions, version=VERSION, expected="offsets by broker")


def _parse_positions(value: Mapping[str, Any]) -> Positions:
    return {broker: _parse_position(entry) for broker, entry in value["stores"].items()}


def _parse_position(entry: Mapping[str, Any]) -> StorePosition:
    record = entry.get("record")
    known = None
    if record is not None:
        known = KnownRecord(_parse_offset(record["offset"]), _parse_offset(record["size"]), str(record["digest"]))
    offset = _parse_offset(entry["offset"])
    if known is not None and known.offset > offset:
        raise ValueError(
            f"expected a last record that begins at or before physical offset {offset}, found one at {known.offset}"
        )
    return StorePosition(offset, known)


def _parse_offset(value: object) -> int:
    number = int_in_range(value, 0, INT64_MAX)
    if number is None:
        raise ValueError(f"expected a physical offset of at least 0, found {str(value)[:40]}")
    return number


def segment_at(store: Store, offset: int) -> Segment | None:
    """Return the segment that contains a physical offset, or None if there is none."""
    for segment in reversed(store.segments):
        if segment.base_offset <= offset:
            return segment if offset < segment.base_offset + segment.file_size else None
    return None


def full_size_of_segment(store: Store, segment: Segment) -> int:
    """Return the size of one of a store's segments when it is full."""
    return segment_sizes(store)[store.segments.index(segment)]


def read_known_record(store: Store, offset: int) -> KnownRecord | None:
    """Return position and hash of the record at an offset; None if the log has too few bytes there."""
    segment = segment_at(store, offset)
    if segment is None:
        return None
    rules = store.format.record_rules
    head = np.empty(rules.known_bytes, np.uint8)
    try:
        with OpenSegment(segment.path) as file:
            if file.read_into(head, offset - segment.base_offset) < len(head):
                return None
    except FileNotFoundError:
        return None
    size = rules.size_of(head.data)
    return KnownRecord(offset, size, hashlib.blake2b(head.data, digest_size=_DIGEST_SIZE).hexdigest())


def check_same_store(store: Store, position: StorePosition) -> None:
    """Check that a store still has the record that a stream's position contains, so that it is the same store.

    Raises:
        StoreReplacedError: if its log ends before the position, or another record is at the remembered offset; deleted
            segments are not checked.
    """
    log_end = store.segments[-1].base_offset + store.segments[-1].file_size
    record = position.record
    if log_end < position.offset:
        expected, found = f"a log of at least {position.offset} bytes", f"one that ends at {log_end}"
    elif (
        record is None or segment_at(store, record.offset) is None or read_known_record(store, record.offset) == record
    ):
        return
    else:
        expected, found = f"the record of {record.size} bytes that the stream knows", "another record, or none"
    raise StoreReplacedError(
        f"store {store.broker!r} ({store.root}) is not the one that the stream has read under this name: at physical "
        f"offset {position.offset if record is None else record.offset} expected {expected}, found {found}. If the "
        "broker was set up again, read it under another name (option broker, or {broker} in the path), or start with "
        "a new checkpoint"
    )
