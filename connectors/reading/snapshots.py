"""Conversion of stores to splits: which range of each log is read, where it ends, and how it is divided.

A snapshot fixes, for each store, the range to read. The range ends after the last valid record of the newest segment.
The bytes after it are the tail: zeros that are not written yet, or the torn end of a write, which the next read
examines again. So within a snapshot everything that is neither a record nor a BLANK is damage, and two reads of one
snapshot return the same rows.

Splits begin and end at boundaries of records, see `segment_walk`. A valid record inside a message's body is not taken
for a boundary.

The last records of a log may be incomplete although head and body are intact, because no CRC covers topic and
properties, which follow the body:

    the record is being written   its last bytes are zeros; possible only for the log's last record
    pages were lost               whole blocks of it are zeros: on network storage, or after a power failure

Any other zeros in the texts were sent by an application. The broker's checkpoint can prove that a record was on the
disk, whatever its bytes are. Without such a proof, the record counts as not written until the next record follows it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from commitlake.connectors.log_format.files import Segment, SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.log_format.records import RecordRules
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.log_folders import find_log_folders
from commitlake.connectors.reading.files.segment_files import LocalFile, OpenSegment
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.newer_data import (
    LogEnd,
    LogToRead,
    RecordedLogEnd,
    describe_other_log,
    find_other_logs,
)
from commitlake.connectors.reading.segment_walk import WalkEnd, find_last_split_point, find_split_points, walk_records
from commitlake.connectors.reading.single_records import LogRecords, scan_at_offset
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store, refresh_store, segment_size, segment_sizes
from commitlake.connectors.reading.unread_warnings import UNREAD
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, SpanKind
from commitlake.schemas.layouts.segment_names import segment_name

BLOCK_BYTES = 512
"""Size that a disk writes atomically; pages are multiples of it."""
_CHECKPOINT, _ABORT = "checkpoint", "abort"
_SMALL_FILE_BYTES = 4096


def has_zero_block(window: Array, begin: int, end: int, record_offset: int) -> bool:
    """Return whether a disk block of a record's texts is all zeros, so that it was not written.

    Args:
        window: the record.
        begin: start of its texts in the window.
        end: end of its texts in the window.
        record_offset: position of the record in its file.
    """
    first = max(-(-record_offset // BLOCK_BYTES), (record_offset + begin) // BLOCK_BYTES)
    # Blocks at the edges also hold bytes of the head, the body or the next record, so only whole blocks are evidence.
    stop = (record_offset + end) // BLOCK_BYTES
    if stop <= first:
        return False
    blocks = window[first * BLOCK_BYTES - record_offset : stop * BLOCK_BYTES - record_offset].reshape(-1, BLOCK_BYTES)
    return not blocks.any(axis=1).all()


def is_confirmed_on_disk(segment_path: str, message: Any, rules: RecordRules) -> bool:
    """Return whether small files beside a log confirm that a message's record was written to disk."""
    root = segment_path.rsplit("/", 2)[0]
    was_closed = _read_first_bytes(f"{root}/{_ABORT}") is None
    return rules.vouches(_read_first_bytes(f"{root}/{_CHECKPOINT}") or b"", message, was_closed)


def _read_first_bytes(path: str) -> bytes | None:
    """Return the first bytes of a small file; None if it does not exist or is not readable."""
    data = np.empty(_SMALL_FILE_BYTES, np.uint8)
    with suppress(OSError, StoreError), OpenSegment(path) as file:
        return data[: file.read_into(data, 0)].tobytes()
    return None


logger = logging.getLogger(__name__)

END_STEP_BYTES = 32 << 20
"""Alignment of the position from which the end of a segment's data is searched."""
_WINDOW_BYTES = 4 << 20


class LogTailKind(StrEnum):
    """Kind of the bytes after a log's last record: not yet written, partly written, or the end of a full segment."""

    UNWRITTEN = "unwritten"
    TORN = "torn"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StoreRange:
    """Range of a store's log that one read covers, with data about the log's end.

    Attributes:
        start: physical offset of the first byte.
        end: physical offset after the last valid record.
        tail: the kind of the bytes after `end`.
        tail_bytes: number of bytes of a torn tail, which are not read.
        last_record: physical offset of the newest segment's last valid record, if it is in the range.
        newer: sentences on messages of the store that the read does not reach, see `newer_data`.
    """

    start: int
    end: int
    tail: LogTailKind = LogTailKind.UNWRITTEN
    tail_bytes: int = 0
    last_record: int | None = None
    newer: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Size of the range in bytes."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ranges that one read covers in each store; two reads of one snapshot have the same rows."""

    ranges: Mapping[str, StoreRange]

    @property
    def size(self) -> int:
        """Size of all ranges in bytes."""
        return sum(store_range.size for store_range in self.ranges.values())

    def to_json(self) -> str:
        """Return the text for the source's option `snapshot`."""
        return json.dumps({broker: asdict(store_range) for broker, store_range in self.ranges.items()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Parse a snapshot from the text of `to_json`.

        Raises:
            UsageError: if the text is not a snapshot.
        """
        try:
            ranges = {
                broker: StoreRange(
                    **{**value, "tail": LogTailKind(value["tail"]), "newer": tuple(value.get("newer", ()))}
                )
                for broker, value in json.loads(text).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"option snapshot: expected the JSON that Snapshot.to_json returns, found something else: {error!r}"
            ) from None
        return cls(ranges)


def take_snapshot(
    stores: Iterable[Store],
    starts: Mapping[str, int] | None = None,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    end_offset: int | None = None,
    is_broker_stopped: bool = False,
) -> Snapshot:
    """Return the range to read in each store: from a given start, or its oldest segment, to its last complete record.

    Without `end_offset`, messages that the store has elsewhere are logged as a warning, see `newer_data`.

    Args:
        stores: from `find_stores`.
        starts: physical offsets to begin at, by broker; each must be the start of a record.
        max_record_bytes: larger sizes are faults.
        end_offset: physical offset at which the wanted part ends. If a later segment has a first record, everything
            before it is complete, and the end of the log is not searched.
        is_broker_stopped: whether no broker is writing these stores. Zeros in a record's topic or properties are then
            content, not pages that are not written yet.
    """
    starts = starts or {}
    ranges = {}
    for store in stores:
        start = starts.get(store.broker)
        found = _find_store_range(store, start, max_record_bytes, end_offset, is_broker_stopped=is_broker_stopped)
        found = _limit_to_committed(store, found)
        if end_offset is None:
            found = replace(found, newer=_find_newer_data(store, start, found, is_broker_stopped=is_broker_stopped))
            for sentence in found.newer:
                UNREAD.warning("%s", sentence)
        ranges[store.broker] = found
    return Snapshot(ranges)


def _limit_to_committed(store: Store, store_range: StoreRange) -> StoreRange:
    """Return a range without the end of an appended log that its group has not committed, and may replace."""
    log = make_read_log(store)
    folders = {Path(segment.path).parent for segment in store.segments}
    if log is None or folders == {log.folder}:
        return store_range
    if not folders.intersection(find_log_folders(log.root, log.format, log.broker).appended):
        return store_range
    last = store.format.folders.find_last_committed(log.root, folders)
    if last is None:
        logger.warning(
            "%s: no checkpoint of DLedger tells which messages are committed: the newest ones may be replaced by "
            "others when another broker becomes the leader",
            store.broker,
        )
        return store_range
    # A broker adds an entry to a queue once its record is committed, but writes the checkpoint every three seconds.
    if (entry := RecordedLogEnd.read_known_end(log).entry) is not None and entry[1] > last[0]:
        message = LogRecords(store.segments, store.format).get_record(entry[1])
        last = last if message is None else (entry[1], entry[1] + message.size)
    if last[1] >= store_range.end:
        return store_range
    end = max(last[1], store_range.start)
    rest = store_range.end - end + store_range.tail_bytes
    record = last[0] if store_range.start <= last[0] < end else None
    return replace(store_range, end=end, tail=LogTailKind.TORN, tail_bytes=rest, last_record=record)


def make_read_log(store: Store) -> LogToRead | None:
    """Return a store's log for comparison with its other files; None for a store in an object store."""
    if store.is_remote:
        return None
    segments = [(segment.base_offset, segment.file_size) for segment in store.segments]
    return LogToRead(store.broker, Path(store.root).parent, store.format, segments)


def _find_newer_data(
    store: Store, start: int | None, store_range: StoreRange, *, is_broker_stopped: bool
) -> tuple[str, ...]:
    """Return sentences that warn of messages in a store which the read does not cover."""
    log = make_read_log(store)
    if log is None:  # `ship` compares the store that it copies
        return ()
    # Another folder is the more exact answer. Its messages are also the reason for any later entries of queues.
    if others := find_other_logs(log, start, store_range.end):
        return tuple(describe_other_log(log, other) for other in others)
    # After the range was found. A broker that writes meanwhile makes this end later, hence the second look below.
    known = RecordedLogEnd.read_known_end(log)
    time = _last_store_time(store, store_range) if known.claims else None
    if known.newer_data_warning(log, LogEnd(store_range.end, _end_of_segment(store, store_range.end), time)) is None:
        return ()
    # A running broker has written meanwhile, also to new segments.
    store = refresh_store(store)
    # The whole log, up to now: what was written since the first look does not count as missing.
    end = _find_store_range(store, None, DEFAULT_MAX_RECORD_BYTES, None, is_broker_stopped=is_broker_stopped).end
    sentence = known.newer_data_warning(log, LogEnd(end, _end_of_segment(store, end), _newest_store_time(store, end)))
    return () if sentence is None else (sentence,)


def _end_of_segment(store: Store, offset: int) -> int:
    """Return the end of the segment that contains the byte before a physical offset."""
    for segment, size in zip(store.segments, segment_sizes(store), strict=True):
        if segment.base_offset < offset <= segment.base_offset + size:
            return segment.base_offset + size
    return offset


def _last_store_time(store: Store, store_range: StoreRange) -> int | None:
    """Return the store time of the last record of a log, ms; None without one."""
    last = (
        store_range if store_range.last_record is not None else add_last_record(store, StoreRange(0, store_range.end))
    )
    message = (
        None if last.last_record is None else LogRecords(store.segments, store.format).get_record(last.last_record)
    )
    return None if message is None else int(str(store.format.record_rules.row_of(message, "")["store_timestamp"]))


def add_last_record(store: Store, store_range: StoreRange) -> StoreRange:
    """Return a range with its `last_record`, which is searched in earlier segments if the newest one has none."""
    found, segments = store_range, store.segments
    # The newest segment may be created but still empty, or hold nothing but a torn record.
    while found.last_record is None and found.size:
        earlier = tuple(segment for segment in segments if segment.base_offset < found.end)
        segments = earlier if len(earlier) < len(segments) else earlier[:-1]
        if not segments:
            break
        shorter = replace(store, segments=segments)
        found = _find_store_range(shorter, found.start, DEFAULT_MAX_RECORD_BYTES, None, is_broker_stopped=False)
    return found


def _newest_store_time(store: Store, end_offset: int) -> int | None:
    """Return the latest store time among the records near the end of a log, in ms; None without records."""
    from commitlake.connectors.reading.index_data.log_range_reader import read_index_data  # noqa: PLC0415 (of few reads)

    times = []
    for whole in segment_ranges(store, StoreRange(max(0, end_offset - 2 * END_STEP_BYTES), end_offset)):
        *_, last = divide_segment(whole, END_STEP_BYTES, DEFAULT_MAX_RECORD_BYTES)
        times += [int(facts.store_timestamp.max()) for facts in read_index_data(last) if facts.record_count]
    return max(times, default=None)


def log_range(store: Store, *, is_live: bool) -> StoreRange:
    """Return the range of a whole log, up to the end that a broker would find when it starts."""
    is_stopped = not is_live and store.format.brokers.accepts_zero_texts
    return take_snapshot([store], is_broker_stopped=is_stopped).ranges[store.broker]


def _find_store_range(
    store: Store, start: int | None, max_record_bytes: int, end_offset: int | None, *, is_broker_stopped: bool
) -> StoreRange:
    first = store.segments[0].base_offset if start is None else start
    for segment, size in zip(reversed(store.segments), reversed(segment_sizes(store)), strict=True):
        begin = max(segment.base_offset, first)
        if first >= segment.base_offset + size:
            break
        if begin >= segment.base_offset + segment.file_size:
            continue  # created or copied without any data
        with OpenSegment(segment.path) as file:
            # For a read up to `end_offset`, a later segment is only needed to see that the log reached it.
            if (
                end_offset is not None
                and end_offset <= segment.base_offset
                and _has_valid_first_record(file, store.format, segment, size, max_record_bytes)
            ):
                return StoreRange(first, max(first, segment.base_offset), LogTailKind.CLOSED)
            near_end = _find_start_near_end(file, store.format, segment, begin, size, max_record_bytes)
            found = find_segment_end(
                file, segment, near_end, size, max_record_bytes, store.format, is_broker_stopped=is_broker_stopped
            )
        if found is not None:
            return replace(found, start=first)
    return StoreRange(first, first)


def _find_start_near_end(
    file: SegmentFile, log_format: Format, segment: Segment, begin: int, size: int, max_record_bytes: int
) -> int:
    """Return a record start near a segment's end, from which to search for the last record; `begin` if none is known.

    A cut may lie in the body of a record that is larger than the look-back of `find_split_point`. So the returned
    position is a cut with another cut at least `max_record_bytes` after it. No record contains both, so the walk also
    covers the bytes after the larger record.

    Args:
        file: the open segment.
        begin: a physical offset at which a record begins, or will begin.
        size: bytes of this segment, see `stores.segment_sizes`.
        max_record_bytes: larger sizes are faults.
    """
    base = segment.base_offset
    file_end = base + min(segment.file_size, size)
    whole = Split("", segment.path, base, begin, file_end, base + size, file_end, format=log_format)
    last = find_last_split_point(file, whole, END_STEP_BYTES, max_record_bytes)
    if last is None or last - max_record_bytes <= begin:
        return begin
    # See above: the position must be so far before the last cut that no record can contain both.
    earlier = replace(whole, end=last - max_record_bytes)
    near_end = find_last_split_point(file, earlier, END_STEP_BYTES, max_record_bytes)
    return begin if near_end is None else near_end


def _has_valid_first_record(
    file: SegmentFile, log_format: Format, segment: Segment, size: int, max_record_bytes: int
) -> bool:
    """Return whether a valid record, or the header of a DLedger entry with its record, begins a segment."""
    base, file_end = segment.base_offset, segment.base_offset + segment.file_size
    split = Split("", segment.path, base, base, file_end, base + size, file_end, format=log_format)
    return scan_at_offset(file, split, base, max_record_bytes)[0].kind in {SpanKind.RECORD, SpanKind.FRAME}


def find_segment_end(
    file: SegmentFile,
    segment: Segment,
    begin: int,
    size: int,
    max_record_bytes: int,
    log_format: Format,
    search_end: int | None = None,
    *,
    is_broker_stopped: bool = False,
) -> StoreRange | None:
    """Return the end of a segment's data, or None if it has none at or after `begin`.

    A BLANK closes the segment only at a position where a record should begin. After a bad range it may be in the body
    of a record that is being written. These bytes are then a torn tail until the broker starts the next segment.

    Args:
        file: the open segment.
        begin: a physical offset at which a record begins, or will begin.
        size: bytes of this segment, see `stores.segment_sizes`.
        max_record_bytes: larger sizes are faults.
        search_end: physical offset at which the search ends; a record that begins before it is read completely.
        is_broker_stopped: see `take_snapshot`.
    """
    file_end = segment.base_offset + segment.file_size
    search_end = file_end if search_end is None else search_end
    if isinstance(file, LocalFile) and file.next_data(begin - segment.base_offset) is None:
        return None
    base, segment_end = segment.base_offset, segment.base_offset + size
    split = Split("", segment.path, base, begin, search_end, segment_end, file_end, format=log_format)
    end, records, bad_end = WalkEnd(), _LastRecords(log_format, needs_texts=not is_broker_stopped), begin
    # Without CRCs: the end of the data is needed, not the state of the bodies, which the read itself verifies.
    for step in walk_records(file, split, _WINDOW_BYTES, max_record_bytes, end, verifies_crc=False):
        if step.parts.shape[1]:
            records.replace_records(step.origin, step.parts)
        if step.bad:
            bad_end = step.bad[-1].end
    # A BLANK directly after a record, not after a bad range, which it may be a part of.
    if end.stop == record_walk.STOP_BLANK and bad_end <= records.last_record_end(default_end=begin):
        return StoreRange(begin, end.position, LogTailKind.CLOSED, last_record=records.last_record_start)
    last_record, last_good = records.find_last_complete_record(file, split, max_record_bytes, default_end=begin)
    if end.stop == record_walk.STOP_UNWRITTEN:
        if last_good == begin and end.position == begin:
            return None
        torn = end.position - last_good
    else:
        torn = max(0, search_end - last_good)
    return StoreRange(begin, last_good, LogTailKind.TORN if torn else LogTailKind.UNWRITTEN, torn, last_record)


class _LastRecords:
    """The records that were read last near a log's end, of which the last completely written one is searched."""

    def __init__(self, log_format: Format, *, needs_texts: bool) -> None:
        self._origin = 0
        self._needs_texts = needs_texts
        self._rules = log_format.record_rules
        self._texts = log_format.kernel.texts
        self._parts = np.empty((log_format.kernel.part_count, 0), np.int64)

    def replace_records(self, window_offset: int, record_parts: Array) -> None:
        """Remember the given records in place of the present ones.

        Args:
            window_offset: physical offset of the step's window.
            record_parts: positions of the parts of the step's records in the window.
        """
        self._origin, self._parts = window_offset, record_parts.copy()

    @property
    def _record_starts(self) -> Array:
        starts: Array = self._origin + self._parts[record_walk.START]
        return starts

    @property
    def _record_ends(self) -> Array:
        ends: Array = self._origin + self._parts[record_walk.PROPERTIES] + self._parts[record_walk.PROPERTIES_LENGTH]
        return ends

    def last_record_end(self, default_end: int) -> int:
        """Return the end of the last record, complete or not; `default_end` if there is none."""
        return int(self._record_ends[-1]) if len(self._record_ends) else default_end

    @property
    def last_record_start(self) -> int | None:
        """Start of the last record, complete or not; None if there is none."""
        return int(self._record_starts[-1]) if len(self._record_starts) else None

    def find_last_complete_record(
        self, file: SegmentFile, split: Split, max_record_bytes: int, default_end: int
    ) -> tuple[int | None, int]:
        """Return start and end of the last record that was certainly written completely."""
        bounds = split.record_size_limits(max_record_bytes)
        begins, ends = self._record_starts.tolist(), self._record_ends.tolist()
        is_last = True
        for row in reversed(range(len(begins))):
            start, stop = begins[row], ends[row]
            window = np.empty(stop - start, np.uint8)
            length = file.read_into(window, start - split.base_offset)
            # Read again from the file, with its CRC: the walk did not verify bodies, and the broker may have written on
            # since.
            finding = self._rules.examine(window.data[:length], 0, start, bounds)
            if finding.kind is not SpanKind.RECORD:
                continue
            if self._has_complete_texts(
                window, row, start - split.base_offset, is_last=is_last
            ) or self._is_record_confirmed(split, window):
                return start, stop
            # Zeros at the end of a text are suspicious only in the log's last record; the next one was begun after it
            # was complete.
            is_last = False
        return None, begins[0] if begins else default_end

    def _text_span(self, row: int) -> tuple[int, int]:
        """Return the start and end of a record's non-empty texts, relative to the record's first byte."""
        parts = self._parts[:, row]
        spans = [(int(parts[place]), int(parts[length])) for place, length in self._texts if parts[length]]
        if not spans:
            return 0, 0
        start = int(parts[record_walk.START])
        return spans[0][0] - start, sum(spans[-1]) - start

    def _has_complete_texts(self, window: Array, row: int, position: int, *, is_last: bool) -> bool:
        """Return False if zeros in a record's texts show that a part of them was not written."""
        if not self._needs_texts:
            return True
        begin, end = self._text_span(row)
        # The texts come last, so a zero as the last byte of the log's last record may mean that it is still being
        # written.
        return (not is_last or end == begin or bool(window[end - 1])) and not has_zero_block(
            window, begin, end, position
        )

    def _is_record_confirmed(self, split: Split, window: Array) -> bool:
        parsed = self._rules.parse(window.data)
        return parsed is not None and is_confirmed_on_disk(split.path, parsed[0], self._rules)


def plan_splits(
    store: Store,
    store_range: StoreRange,
    max_partition_bytes: int,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> list[Split]:
    """Return the splits of one store's range, in order, including missing segments.

    Splits are cut at multiples of `max_partition_bytes` in physical offsets, so that the same log gives the same splits
    whenever it is read.
    """
    return [
        split
        for whole in segment_ranges(store, store_range)
        for split in divide_segment(whole, max_partition_bytes, max_record_bytes)
    ]


def segment_ranges(store: Store, store_range: StoreRange) -> list[Split]:
    """Return one split for each segment in a store's range, including missing segments, in order."""
    return list(_segment_ranges(store, store_range))


def _segment_ranges(store: Store, store_range: StoreRange) -> Iterator[Split]:
    common = segment_size(store)
    expected = store_range.start
    for segment, size in zip(store.segments, segment_sizes(store), strict=True):
        if segment.base_offset >= store_range.end:
            break
        segment_end = segment.base_offset + size
        if segment_end <= store_range.start:
            continue
        if segment.base_offset > expected:
            yield _missing_split(store, expected, segment.base_offset, common)
        start = max(segment.base_offset, expected)
        end = min(segment_end, store_range.end)
        file_end = segment.base_offset + min(segment.file_size, size)
        if segment.file_size > size:
            logger.warning("%s has %d bytes, %d more than fit before the next segment: they are not read",
                           segment.path, segment.file_size, segment.file_size - size)  # fmt: skip
        base, path = segment.base_offset, segment.path
        yield Split(store.broker, path, base, start, end, segment_end, file_end, format=store.format)
        expected = end
    if expected < store_range.end:
        yield _missing_split(store, expected, store_range.end, common)


def _missing_split(store: Store, start: int, end: int, size: int) -> Split:
    # The name that the segment would have, for messages; it is a guess if the size of segments has changed.
    base_offset = start - start % size
    path = f"{store.root}/{segment_name(base_offset)}"
    return Split(store.broker, path, base_offset, start, end, end, end, missing=True, format=store.format)


def divide_segment(
    split: Split, max_partition_bytes: int, max_record_bytes: int, end_offset: int | None = None
) -> Iterator[Split]:
    """Yield splits of a segment's range, or of a missing segment; each split point is searched only when needed.

    Args:
        split: from `segment_ranges`.
        max_partition_bytes: splits are cut at multiples of this.
        max_record_bytes: larger sizes are faults.
        end_offset: physical offset at which the wanted part ends. Nothing after the first cut at or after it is
            examined, and the last split ends at that cut.
    """
    if (
        split.missing
        or split.size <= max_partition_bytes
        or split.start // max_partition_bytes == (split.end - 1) // max_partition_bytes
    ):
        yield split
        return
    end_offset = split.end if end_offset is None else end_offset
    start = split.start
    try:
        with OpenSegment(split.path) as file:
            for cut in find_split_points(file, split, max_partition_bytes, max_record_bytes, end_offset):
                yield replace(split, start=start, end=cut)
                start = cut
    except FileNotFoundError:
        pass  # the task that reads the rest will find the same problem, and report it
    if start < min(end_offset, split.end):
        yield replace(split, start=start)


def check_snapshot_stores(stores: Iterable[Store], snapshot: Snapshot) -> None:
    """Check that all stores of a snapshot exist.

    Raises:
        StoreError: for the first store that is missing.
    """
    known = {store.broker for store in stores}
    for broker in snapshot.ranges:
        if broker not in known:
            raise StoreError(
                f"the snapshot contains the store {broker!r}, but the path contains "
                f"{', '.join(sorted(known)) or 'none'}: expected the path for which the snapshot was made"
            )
