"""A minimal log format that exists only in tests, in plain Python.

A record: total size (int32), magic `TY`, its own offset, store time in ms and queue offset (int64 each), length of the
topic (1 byte), topic, body. All numbers are big-endian; every topic has one queue, 0. A filler: size, magic `TF`. A
queue file `toyqueue/<topic>/0/<20 digits>` has an entry of 12 bytes for each message: offset and size of its record.The
checkpoint is the end offset of the log, in 8 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commitlake.connectors.log_format.checkpoint_and_config import (
    CheckpointClaim,
    Problems,
    RebuiltLog,
    SmallFiles,
    read_checkpoint_file,
)
from commitlake.connectors.log_format.files import Segment, StoreFiles
from commitlake.connectors.log_format.format import (
    BrokerRules,
    Format,
    FormatIndexes,
    FormatQueues,
    FormatSmallFiles,
    StoreFolders,
)
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.kernel import BadRange, FormatKernel, WalkArguments
from commitlake.connectors.log_format.queues import (
    AFTER_ALL,
    NewQueue,
    NewQueueFiles,
    QueueEntries,
    QueueFormat,
    QueueLayout,
)
from commitlake.connectors.log_format.records import RecordRules
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.decoder import Decoder
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.record_starts import NONE_HERE
from commitlake.schemas.layouts.base import Field, Layout
from commitlake.schemas.layouts.rocketmq.scan import Fault, ScanFinding, ScanRules, SegmentScanner, SizeLimits, SpanKind
from commitlake.schemas.layouts.segment_names import segment_name

HEAD = struct.Struct(">i2sqqqB")
RECORD, FILLER = b"TY", b"TF"
_SHORT = struct.Struct(">i2s")
_AT_TIME, _AT_NUMBER = 14, 22
ENTRY = Layout(Field("offset", "q", "of the record"), Field("size", "i", "its bytes"))
FILE_SIZE = 10 * ENTRY.size


@dataclass(frozen=True)
class ToyMessage:
    """A parsed record."""

    size: int
    physical_offset: int
    store_timestamp: int
    queue_offset: int
    topic: str
    body: bytes
    queue_id: int = 0


def serialize(topic: str, body: bytes, offset: int, number: int, time: int = 1) -> bytes:
    """Return a record."""
    name = topic.encode()
    return HEAD.pack(HEAD.size + len(name) + len(body), RECORD, offset, time, number, len(name)) + name + body


def _parse(data: memoryview) -> tuple[ToyMessage, int] | None:
    if len(data) < HEAD.size:
        return None
    size, _, offset, time, number, length = HEAD.unpack_from(data)
    text = bytes(data[HEAD.size : size])
    return ToyMessage(size, offset, time, number, text[:length].decode(), text[length:]), size


def _examine(window: memoryview, position: int, offset: int, bounds: SizeLimits) -> ScanFinding:  # noqa: PLR0911
    left = bounds.file_end - offset
    if len(window) - position < min(HEAD.size, left):
        return ScanFinding(SpanKind.MORE)
    if left < HEAD.size:
        return ScanFinding(SpanKind.UNWRITTEN if not any(window[position:]) else SpanKind.FAULT, 0, Fault.CUT)
    size, magic, own_offset, *_ = HEAD.unpack_from(window, position)
    if magic == FILLER and size == bounds.segment_end - offset:
        return ScanFinding(SpanKind.BLANK, size)
    if (size, magic) == (0, bytes(2)):
        return ScanFinding(SpanKind.UNWRITTEN)
    if magic != RECORD:
        return ScanFinding(SpanKind.FAULT, 0, Fault.MAGIC, "TY", magic.hex())
    if own_offset != offset:
        return ScanFinding(SpanKind.FAULT, 0, Fault.PHYSICAL_OFFSET, f"{offset}", f"{own_offset}")
    if not HEAD.size <= size <= left:
        return ScanFinding(SpanKind.FAULT, 0, Fault.SIZE, f"{HEAD.size} to {left} bytes", f"{size}")
    return ScanFinding(SpanKind.RECORD if size <= len(window) - position else SpanKind.MORE, size)


class _Scanner(SegmentScanner):
    def __init__(self, start: int, bounds: SizeLimits) -> None:
        super().__init__(start, bounds, ScanRules(_examine, re.compile(rb"T[YF]"), 4, 2))


def _row_of(message: ToyMessage, broker: str) -> dict[str, object]:
    return {"broker": broker, "physical_offset": message.physical_offset, "topic": message.topic}


RULES = RecordRules(
    examine=_examine,
    scanner=_Scanner,
    parse=_parse,
    vouches=lambda checkpoint, message, _: message.physical_offset + message.size <= int.from_bytes(checkpoint[:8]),
    row_of=_row_of,
    size_of=lambda head: int(_SHORT.unpack(head)[0]),
    is_filler=lambda head: _SHORT.unpack(head)[1] == FILLER,
    own_offset=lambda head: int(HEAD.unpack_from(head)[2]) if len(head) >= HEAD.size else None,
    head_bytes=_SHORT.size,
    known_bytes=HEAD.size,
)


def _hop(*arguments_and_results: Any) -> None:
    """Walk over records, as `record_walk.walk_records`. A window must contain a whole bad range, as in small logs."""
    *arguments, state, parts, faults = arguments_and_results
    at = WalkArguments(*arguments)
    view, bounds = at.window.data[: at.length], SizeLimits(at.segment_end, at.file_end, at.max_record_bytes)
    state[h.STOP] = -1
    while state[h.STOP] < 0:
        offset = int(state[h.POSITION])
        if state[h.RECORDS] >= parts.shape[1] - 1 or state[h.FAULTS] >= len(faults):
            state[h.STOP] = h.STOP_ROOM
        elif offset >= at.limit:
            state[h.STOP] = h.STOP_LIMIT
        else:
            _step(view, at, bounds, offset, state, parts, faults)


def _step(
    view: memoryview, at: WalkArguments, bounds: SizeLimits, offset: int, state: Array, parts: Array, faults: Array
) -> None:
    position = offset - at.origin
    finding = _examine(view, position, offset, bounds)
    if finding.kind is SpanKind.RECORD:
        topic = view[position + HEAD.size - 1]
        body = position + HEAD.size + topic
        end = position + finding.size
        # The texts at the end of a record are specific to the format; its properties are empty, and located there.
        parts[: h.PART_COUNT, state[h.RECORDS]] = 0
        for row, value in (
            (h.START, position),
            (h.BODY, body),
            (h.BODY_LENGTH, end - body),
            (h.TOPIC, position + HEAD.size),
            (h.TOPIC_LENGTH, topic),
            (h.PROPERTIES, end),
        ):
            parts[row, state[h.RECORDS]] = value
        state[h.RECORDS] += 1
        state[h.POSITION] += finding.size
    elif finding.kind is SpanKind.MORE:
        state[h.STOP] = h.STOP_WINDOW
    elif finding.kind is SpanKind.BLANK:
        state[h.POSITION] += finding.size
        state[h.STOP] = h.STOP_BLANK
    elif not any(view[position:]):
        state[h.UNWRITTEN_START] = offset
        state[h.STOP] = h.STOP_UNWRITTEN
    else:
        end = _next_record(view, at, bounds, offset + 1)
        faults[state[h.FAULTS]] = offset, end, h.CODE_BY_FAULT[finding.fault or Fault.HOLE]
        state[h.FAULTS] += 1
        state[h.POSITION] = end


def _next_record(view: memoryview, at: WalkArguments, bounds: SizeLimits, offset: int) -> int:
    while offset < at.limit and _examine(view, offset - at.origin, offset, bounds).kind is not SpanKind.RECORD:
        offset += 1
    return offset


def _numbers(window: Array, parts: Array, place: int) -> Array:
    starts = parts[h.START].tolist()
    return np.array([int.from_bytes(window[start + place : start + place + 8].tobytes()) for start in starts], np.int64)


def _place_of(data: bytes) -> int:
    return int(ENTRY.unpack(data)[0]) if len(data) == ENTRY.size and any(data) else AFTER_ALL


KERNEL = FormatKernel(
    hop=_hop,
    find_border=lambda *_: NONE_HERE,
    part_count=h.PART_COUNT,
    texts=((h.TOPIC, h.TOPIC_LENGTH),),
    store_times=lambda window, parts: _numbers(window, parts, _AT_TIME),
    queue_ids=lambda _, parts: np.zeros(parts.shape[1], np.int64),
    queue_offsets=lambda window, parts: _numbers(window, parts, _AT_NUMBER),
    decoder=Decoder,  # for RocketMQ's records, which are not decoded here
)
LOOKUP = QueueFormat("toy queue", "toyqueue", ENTRY, "offset", _place_of, HEAD.size, re.compile("[a-z]+"))
_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4")])


def _to_entries(columns: QueueEntries) -> Array:
    entries = np.zeros(len(columns), _DTYPE)
    entries["physical_offset"], entries["size"] = columns.physical_offset, columns.size
    return entries


def _is_written(entries: Array) -> Array:
    written: Array = entries["size"] > 0
    return written


QUEUES = QueueLayout(
    folder="toyqueue",
    topics=None,
    dtype=_DTYPE,
    code_field=None,
    default_file_size=FILE_SIZE,
    is_aligned=True,
    is_written=_is_written,
    is_filler=lambda entries: np.zeros(len(entries), np.bool_),
    refuses_other_names=False,
    fills_gaps=False,
    to_entries=_to_entries,
    words=lambda entry: f"offset {entry['physical_offset']}, {entry['size']} bytes",
)


class _Reader:
    """A collector of index data; see `facts.reading.IndexDataReader`."""

    is_full = False

    def __init__(self, start: int) -> None:
        self._start = start
        self._messages: list[ToyMessage] = []
        self._bad: list[BadRange] = []
        self._parts = np.zeros((h.PART_COUNT, 1000), np.int64)

    def locate_next_records(self, arguments: WalkArguments, state: Array, faults: Array) -> Array:
        _hop(*arguments, state, self._parts, faults)
        found: Array = self._parts[:, : state[h.RECORDS]]
        return found

    def add_records(
        self, window: Array, record_parts: Array, window_offset: int, bad_ranges: Sequence[BadRange]
    ) -> None:
        found = (_parse(window.data[start:]) for start in record_parts[h.START].tolist())
        self._messages += [parsed[0] for parsed in found if parsed]
        self._bad += bad_ranges

    def add_bad_range(self, bad_range: BadRange) -> None:
        self._bad.append(bad_range)

    def finish_chunk(self, chunk_end: int | None = None) -> IndexData:
        messages, count = self._messages, len(self._messages)
        topics = sorted({message.topic for message in messages})
        nothing = np.zeros(count, np.int32)
        return IndexData(
            start=self._start,
            end=self._start if chunk_end is None else chunk_end,
            topics=topics,
            physical_offset=np.array([message.physical_offset for message in messages], np.int64),
            size=np.array([message.size for message in messages], np.int32),
            topic=np.array([topics.index(message.topic) for message in messages], np.int32),
            queue_id=nothing,
            queue_offset=np.array([message.queue_offset for message in messages], np.int64),
            store_timestamp=np.array([message.store_timestamp for message in messages], np.int64),
            tags_code=np.zeros(count, np.int64),
            sys_flag=nothing,
            batch_size=nothing,
            tags_hash=np.full(count, -1, np.int32),
            key_ends=nothing,
            key_hashes=np.empty(0, np.int32),
            multi_dispatch={},
            bad=tuple(self._bad),
        )


class _Writer:
    """A writer that puts each entry at its offset."""

    skipped_count = shifted_count = lost_count = 0

    def __init__(self, files: NewQueueFiles) -> None:
        self._files = files

    def append_entries(self, entries: Array, queue_offsets: Array | None, first_queue_offset: int) -> None:
        places = (
            np.arange(first_queue_offset, first_queue_offset + len(entries)) if queue_offsets is None else queue_offsets
        )
        for number, entry in zip(places.tolist(), entries, strict=True):
            self._files.write(number * ENTRY.size, np.ascontiguousarray(entry).data)


class _Folders(StoreFolders):
    own = frozenset({"toylog", "toyqueue"})
    rebuilt = ("toyqueue", "checkpoint")


class _Queues(FormatQueues):
    folders = ("toyqueue",)
    layout = QUEUES
    lookup_queue_format = LOOKUP

    def walk_queue_entries(
        self, files: StoreFiles, topic: str | None, queue_id: int | None, report_damage: Callable[[str], None]
    ) -> Iterator[dict[str, object]]:
        for path in sorted(Path(files.location_of("toyqueue")).glob(f"{topic or '*'}/0/*")):
            for entry in np.frombuffer(path.read_bytes(), _DTYPE):
                if entry["size"]:
                    yield {"topic": path.parts[-3], "physical_offset": int(entry["physical_offset"])}

    def make_queue_writer(self, files: NewQueueFiles, queue: NewQueue) -> _Writer:
        return _Writer(files)


class _Indexes(FormatIndexes):
    def make_index_data_reader(self, start_offset: int, delay_levels_ms: Sequence[int], chunk_rows: int) -> _Reader:
        return _Reader(start_offset)

    def no_key_index_reason(self, segments: Sequence[Segment]) -> str:
        return "a toylog has no index of keys"


class _SmallFiles(FormatSmallFiles):
    def read_small_files(self, root: Path, problems: Problems, *, is_live: bool) -> SmallFiles:
        data = read_checkpoint_file(root / "checkpoint", problems, is_live=is_live)
        claims = () if data is None else (CheckpointClaim("end", int.from_bytes(data[:8]), is_time=False),)
        return SmallFiles(claims, "offsets", (), {})

    def new_checkpoint(self, root: Path, log: RebuiltLog) -> bytes:
        return log.end.to_bytes(8)


class ToyFormat(Format):
    """The toy format; see the module's docstring."""

    name = "toy"
    title = "Toy"
    folder = "toylog"
    id_pattern = "^toy:"
    brokers = BrokerRules()
    folders = _Folders()
    queues = _Queues()
    indexes = _Indexes()
    small_files = _SmallFiles()
    record_rules = RULES
    kernel = KERNEL

    def make_sample_files(self, segment_size: int) -> Mapping[str, bytes]:
        return {f"{self.folder}/{segment_name(0)}": serialize("orders", b"first", 0, 0).ljust(segment_size, b"\0")}


FORMAT = ToyFormat()
