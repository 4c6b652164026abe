"""How far a stream has come: what Spark keeps in its checkpoint for each micro-batch.

    {"version": 1, "stores": {"broker-a": {"offset": 1244, "record": {"offset": 1000, "size": 244, "digest": "9f…"}}}}

`offset` is where the next record begins, or will: the physical offset behind the last whole record that was taken.
`record` is the last one that was taken, or at the start the first to be, by which the store is known again: a broker
that was set up anew under an old name has other records there. What is digested of it is written before its body, so
that it is whole where the body is.

Spark keeps where a micro-batch ends, and asks the source again where a stream begins when its first one did not finish;
that is another place by then, where a segment was deleted. So a beginning says `initial`, and the first end
behind it has it as `first`: the first micro-batch is what lies between those two, whenever it is planned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from commitlake.connectors.formats.engine.continuity import StoreReplacedError
from commitlake.connectors.formats.engine.errors import CheckpointError
from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.engine.stores import Segment, Store, segment_sizes
from commitlake.connectors.sources.stream_checkpoint import read_checkpoint
from commitlake.schemas.layouts.numbers import INT64_MAX, int_within

VERSION = 1
_DIGEST_SIZE = 8


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """A record by which a store is known again.

    Attributes:
        offset: physical offset of its first byte.
        size: its bytes.
        digest: hex of a hash of its first bytes.
    """

    offset: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class StorePosition:
    """How far a stream has come in one store.

    Attributes:
        offset: physical offset behind what was taken.
        record: the last record before it, or an older one, or the one there; None where none is known yet.
    """

    offset: int
    record: KnownRecord | None = None


Positions = dict[str, StorePosition]
"""By broker."""


def to_checkpoint(positions: Mapping[str, StorePosition]) -> dict[str, Any]:
    """What Spark keeps; equal positions give equal text."""
    stores: dict[str, Any] = {}
    for broker in sorted(positions):
        position = positions[broker]
        stores[broker] = {"offset": position.offset}
        if position.record is not None:
            stores[broker]["record"] = asdict(position.record)
    return {"version": VERSION, "stores": stores}


def initial_checkpoint(positions: Mapping[str, StorePosition]) -> dict[str, Any]:
    """Where a stream begins."""
    return {**to_checkpoint(positions), "initial": True}


def next_checkpoint(start: Mapping[str, Any], end: Mapping[str, StorePosition]) -> dict[str, Any]:
    """What Spark keeps for the micro-batch from one checkpoint up to `end`; `start` itself where nothing is new."""
    value = to_checkpoint(end)
    if value["stores"] == start["stores"]:
        return dict(start)
    return {**value, "first": start["stores"]} if start.get("initial") else value


def batch_between(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Positions, Positions]:
    """Where a micro-batch begins and ends.

    Args:
        start: what Spark takes for its beginning: of a stream's first micro-batch, where it would begin by now.
        end: what it has kept.

    Raises:
        CheckpointError: if they are not what the functions above give.
    """
    first = end.get("first")
    begin = start if first is None else {"version": end.get("version"), "stores": first}
    return from_checkpoint(begin), from_checkpoint(end)


def from_checkpoint(value: Mapping[str, Any]) -> Positions:
    """The positions in what Spark has kept.

    Raises:
        CheckpointError: if it is not what `to_checkpoint` gives.
    """
    return read_checkpoint(value, _positions, version=VERSION, expected="offsets by broker", error=CheckpointError)


def _positions(value: Mapping[str, Any]) -> Positions:
    return {broker: _position(entry) for broker, entry in value["stores"].items()}


def _position(entry: Mapping[str, Any]) -> StorePosition:
    record = entry.get("record")
    known = None
    if record is not None:
        known = KnownRecord(_offset(record["offset"]), _offset(record["size"]), str(record["digest"]))
    offset = _offset(entry["offset"])
    if known is not None and known.offset > offset:
        raise ValueError(f"offset {offset}")
    return StorePosition(offset, known)


def _offset(value: object) -> int:
    number = int_within(value, 0, INT64_MAX)
    if number is None:
        raise ValueError(f"offset {str(value)[:40]}")
    return number


def segment_at(store: Store, offset: int) -> Segment | None:
    """The segment that holds a physical offset."""
    for segment in reversed(store.segments):
        if segment.base_offset <= offset:
            return segment if offset < segment.base_offset + segment.file_size else None
    return None


def size_of(store: Store, segment: Segment) -> int:
    """Bytes of one of a store's segments, once it is full."""
    return segment_sizes(store)[store.segments.index(segment)]


def known_record(store: Store, offset: int) -> KnownRecord | None:
    """The record at an offset, where it should be remembered, or None where there are not bytes enough for one."""
    segment = segment_at(store, offset)
    if segment is None:
        return None
    rules = store.format.rules
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
    """Refuse a store that is not the one in which a stream has come to a position.

    Raises:
        StoreReplacedError: if its log ends before the position, or another record stands where one is remembered;
            nothing is said of what the broker has deleted.
    """
    log_end = store.segments[-1].base_offset + store.segments[-1].file_size
    record = position.record
    if log_end < position.offset:
        expected, found = f"a log of at least {position.offset} bytes", f"one that ends at {log_end}"
    elif record is None or segment_at(store, record.offset) is None or known_record(store, record.offset) == record:
        return
    else:
        expected, found = f"the record of {record.size} bytes that the stream knows", "another record, or none"
    raise StoreReplacedError(
        f"store {store.broker!r} ({store.root}) is not the one that the stream has read under this name: at physical "
        f"offset {position.offset if record is None else record.offset} expected {expected}, found {found}. If the "
        "broker was set up again, read it under another name (option broker, or {broker} in the path), or begin with a "
        "new checkpoint"
    )
