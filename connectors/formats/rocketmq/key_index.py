"""Index of keys, from IndexFiles.

A file is trusted for the part of the log between the records of its first and its last entry, if its header matches the
file, no slot is lost, every chain that is followed is valid, and every entry found refers to a record with its hash.
If two adjacent entries of that part are more than 1 MiB of log apart (the broker's index may have been switched off),
the range between them is scanned. So are the ranges between the files, before the first and after the last.

Two cases are not detected: a range of less than 1 MiB that a broker did not index, and a record that was stored as
rolled back, as brokers before 4.x did. If the index was switched off and on again within seconds, read with
`useIndexes=false`.

The index has a record under the last of its UNIQ_KEYs. For a batch's messages (brokers 4.9.4 to 5.3.3) this is the key
of the batch, while `unique_key` is the first one, the message's own. So if the index does not have a key in the form of
a message id, the key may still exist, and the index is not used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.log_format.indexes import BadIndexError, IndexAnswer, LogRange
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    IndexFileEntry,
    geometry_of,
    key_hash,
    parse_entry,
    parse_header,
    tags_index_key,
)
from commitlake.schemas.safe_store_files import files_in, open_file

FOLDER = "index"
_MAX_GAP_BYTES = 1 << 20
_MAX_HITS = 1 << 16
_FEW_RECORDS = 4
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_REPLACEMENT = "\ufffd"

MessageAt = Callable[[int], Message | None]
"""Function that returns the record at a physical offset, or None."""


class _UnusableFileError(Exception):
    """Error for an index file that cannot be trusted, with the reason."""


@dataclass(frozen=True)
class _CoveredRange:
    """Range of the log whose records one IndexFile lists, its holes, and the offsets of the wanted records in it."""

    start: int
    end: int
    holes: tuple[tuple[int, int], ...]
    hits: frozenset[int]


class IndexFiles:
    """The IndexFiles of one store, searched for the records with certain keys.

    Attributes:
        name: the name of the index in a plan.
        notes: files that were not trusted, and why.
    """

    name = "IndexFile"

    def __init__(
        self, store_folder: Path, topics: Collection[str], keys: Collection[str], message_at: MessageAt
    ) -> None:
        """Search the IndexFiles of a store for records with the given topics and keys.

        Args:
            store_folder: the folder that holds `index`.
            topics: the topics that are searched.
            keys: the keys that are searched for.
            message_at: reads the record that an entry refers to from the log.

        Raises:
            BadIndexError: if there is no index, it cannot be read, or it does not contain a message id.
        """
        keys, topics = sorted(keys), sorted(topics)
        if any(_REPLACEMENT in text for text in (*keys, *topics)):
            raise BadIndexError(
                "a key or topic contains the character U+FFFD, which may replace bytes that were hashed differently in "
                "the index"
            )
        self._message_at = message_at
        self.notes: list[str] = []
        self._hashes = frozenset(key_hash(topic, key) for topic in topics for key in keys)
        try:
            folder = store_folder / FOLDER
            folder.stat()  # a missing folder is not an empty index
            paths = [folder / name for name in files_in(folder, str.isdecimal)]
            parts = [part for path in paths if (part := self._search_file(path, self._hashes)) is not None]
        except OSError as error:
            raise BadIndexError(f"{error.filename}: {error.strerror}") from None
        # Not sorted by name, because names are local times, in which an hour repeats in autumn.
        self._parts = sorted(parts, key=lambda part: part.start)
        if not self._parts:
            raise BadIndexError(self.notes[0] if self.notes else f"{store_folder / FOLDER} holds no file with entries")
        # Files of one broker never overlap. If they do, some are left from another log, and none can be trusted.
        if any(later.start < earlier.end for earlier, later in zip(self._parts, self._parts[1:], strict=False)):
            raise BadIndexError(f"the index files in {store_folder / FOLDER} overlap or are out of order")
        self._hits = sorted(frozenset().union(*(part.hits for part in self._parts)))
        if len(self._hits) > _MAX_HITS:
            raise BadIndexError(
                f"the index lists more than {_MAX_HITS} records for these keys, so that a scan of the log is faster"
            )
        self._check_unique_keys([key for key in keys if _MESSAGE_ID.fullmatch(key)], topics)

    def _search_file(self, path: Path, hashes: Iterable[int]) -> _CoveredRange | None:
        descriptor = open_file(path)
        try:
            return _IndexFile(descriptor).find_covered_range(hashes)
        except _UnusableFileError as unusable:
            self.notes.append(f"{path.name}: {unusable}")
            return None
        finally:
            os.close(descriptor)

    def _check_unique_keys(self, message_ids: list[str], topics: Collection[str]) -> None:
        if not message_ids:
            return
        found = (message for hit in self._hits if (message := self._message_at(hit)) is not None)
        own = {message.unique_key for message in found if message.topic in topics}
        unknown = [message_id for message_id in message_ids if message_id not in own]
        if unknown:
            raise BadIndexError(
                f"the index does not contain the message id {unknown[0]}; it may be that of a message in a batch, "
                "which the index has under another id"
            )

    def find_records(self, segment_range: LogRange) -> IndexAnswer:
        """Return the wanted records in a segment's range, and the parts of the range that no file covers."""
        unknown = list(self._uncovered_ranges(segment_range.start, segment_range.end))
        listed = {
            hit: self._record_size_at(hit)
            for hit in self._hits
            # Hits in an uncovered range are left out: the range is scanned, and a record must not be read twice.
            if segment_range.start <= hit < segment_range.end and not any(start <= hit < end for start, end in unknown)
        }
        open_ranges = []
        for start, end in unknown:
            few = self._find_short_range_records(start, end)
            listed.update(few)
            if not few:
                open_ranges.append((start, end))
        offsets = sorted(listed)
        sizes = [listed[offset] for offset in offsets]
        return IndexAnswer(np.array(offsets, np.int64), np.array(sizes, np.int64), open_ranges)

    def _record_size_at(self, offset: int) -> int:
        message = self._message_at(offset)
        if message is None:
            raise BadIndexError(
                f"an entry of the index refers to physical offset {offset}, where there is no valid record"
            )
        # The hash says little, as many keys share one, but a record without it shows that the index belongs to another
        # log.
        if self._hashes.isdisjoint(_hashes_of_message(message)):
            raise BadIndexError(
                f"an entry of the index refers to physical offset {offset}, whose record does not have the key"
            )
        return message.size

    def _find_short_range_records(self, start: int, end: int) -> dict[int, int]:
        """Return the sizes of all records in a range, by offset; empty if it has more than a few records, or damage.

        The range between two files has one or two records. Listing them, wanted or not, costs less than a task.
        """
        found: dict[int, int] = {}
        while start < end and len(found) < _FEW_RECORDS:
            message = self._message_at(start)
            if message is None:
                return {}
            found[start] = message.size
            start += message.size
        return found if start == end else {}

    def _uncovered_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range of the log whose records no IndexFile lists."""
        known = [edge for part in self._parts for edge in _split_at_holes(part)]
        at = start
        for begin, stop in known:
            if stop <= at:
                continue
            if begin >= end:
                break
            if begin > at:
                yield at, begin
            at = stop
        if at < end:
            yield at, end


def _hashes_of_message(message: Message) -> set[int]:
    """Return the hashes under which a broker enters a record in an IndexFile."""
    found = message.properties
    keys = [*(message.keys or ()), found.get(props.UNIQ_KEY, "")]
    if tags := found.get(props.TAGS):
        keys.append(tags_index_key(tags))
    return {key_hash(message.topic, key) for key in keys}


def _split_at_holes(covered_range: _CoveredRange) -> Iterator[tuple[int, int]]:
    at = covered_range.start
    for begin, stop in covered_range.holes:
        if begin > at:
            yield at, begin
        at = max(at, stop)
    if covered_range.end > at:
        yield at, covered_range.end


class _IndexFile:
    """Open index file; a search reads only a few small pieces of it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        try:
            self._geometry: Geometry = geometry_of(size)
            self._header = parse_header(os.pread(descriptor, HEADER.size, 0))
        except LayoutError as error:
            raise _UnusableFileError(str(error)) from None
        self._check_used_slots()

    def _check_used_slots(self) -> None:
        """Check that no slots were lost, as in a power failure, because keys in lost slots would seem to be absent."""
        slots, header = self._geometry.slots, self._header
        # Counts may be too low, but never too high.
        if not (0 <= header.index_count <= self._geometry.entries and 0 <= header.used_slots <= slots):
            raise _UnusableFileError(
                f"the header has impossible counts: {header.index_count} entries and {header.used_slots} used slots"
            )
        # All slots of a file, 20 MB by default, in one read: a lost page cannot be seen in any other way.
        data = os.pread(self._descriptor, SLOT.size * slots, self._geometry.slot_position(0))
        if len(data) < SLOT.size * slots:
            raise _UnusableFileError(f"the slots have only {len(data)} bytes: the file was truncated while it was read")
        table = np.frombuffer(data, ">i4")
        used = int(np.count_nonzero(table))
        if used < header.used_slots:
            raise _UnusableFileError(f"{used} slots are used, but the header says {header.used_slots}")

    def find_covered_range(self, hashes: Iterable[int]) -> _CoveredRange | None:
        """Return the range of the log whose records the file lists, and the wanted ones; None for too few entries."""
        count = self._header.index_count
        # The count begins at 1, so 1 is an empty file.
        if count <= 1:
            return None
        first, last = self._read_entry(1).physical_offset, self._read_entry(count - 1).physical_offset
        begin, end = self._header.begin_physical_offset, self._header.end_physical_offset
        if first != begin or not first <= last <= end:
            raise _UnusableFileError(
                f"the entries are for physical offsets {first} to {last}, but the header says {begin} to {end}"
            )
        # The neighbouring files may have other keys of the first and last record.
        start = self._find_second_offset(first, count)
        hits = frozenset(offset for wanted in hashes for offset in self._walk_hash_chain(wanted))
        return _CoveredRange(start, max(start, last), tuple(self._find_coverage_holes(1, count - 1)), hits)

    def _find_second_offset(self, first_offset: int, entry_count: int) -> int:
        for number in range(2, entry_count):
            offset = self._read_entry(number).physical_offset
            if offset != first_offset:
                return offset
        return first_offset

    def _walk_hash_chain(self, wanted_hash: int) -> Iterator[int]:
        """Yield the physical offsets of the records with a hash, newest first.

        Entries beyond the header's count are followed, too, because a crash leaves the count too low.
        """
        slots = self._geometry.slots
        position = self._geometry.slot_position(wanted_hash % slots)
        number = int.from_bytes(os.pread(self._descriptor, SLOT.size, position), "big", signed=True)
        before = self._geometry.entries
        while number != 0:
            # Each link leads to an older entry, with a smaller number. So a damaged chain ends here instead of becoming
            # a circle.
            if not 0 < number < before:
                raise _UnusableFileError(f"entry {before} is linked to entry {number}: expected an earlier entry")
            entry = self._read_entry(number)
            if entry.key_hash % slots != wanted_hash % slots or not any(entry):
                raise _UnusableFileError(f"entry {number} does not belong to the hash slot from which it is linked")
            if entry.key_hash == wanted_hash:
                self._check_entry_offset(number, entry.physical_offset)
                yield entry.physical_offset
            before, number = number, entry.previous_entry

    def _check_entry_offset(self, entry_number: int, physical_offset: int) -> None:
        header = self._header
        is_known = entry_number < header.index_count  # entries beyond the count are newer than the header
        if is_known and not header.begin_physical_offset <= physical_offset <= header.end_physical_offset:
            raise _UnusableFileError(
                f"entry {entry_number} refers to physical offset {physical_offset}, which is outside the range in the "
                "header"
            )

    def _find_coverage_holes(self, first_entry: int, last_entry: int) -> Iterator[tuple[int, int]]:
        """Return the ranges between consecutive entries whose records are so far apart that entries may be missing."""
        todo = [
            (
                first_entry,
                self._read_entry(first_entry).physical_offset,
                last_entry,
                self._read_entry(last_entry).physical_offset,
            )
        ]
        # By bisection: a part of the file whose log is short enough is not read, and a complete file needs few reads.
        while todo:
            first, begin, last, end = todo.pop()
            if end < begin:
                raise _UnusableFileError(f"the physical offsets of entries {first} and {last} are in the wrong order")
            if end - begin <= _MAX_GAP_BYTES:
                continue
            if last - first == 1:
                yield begin, end
                continue
            middle = (first + last) // 2
            between = self._read_entry(middle).physical_offset
            todo += [(middle, between, last, end), (first, begin, middle, between)]

    def _read_entry(self, entry_number: int) -> IndexFileEntry:
        data = os.pread(self._descriptor, ENTRY.size, self._geometry.entry_position(entry_number))
        if len(data) < ENTRY.size:
            raise _UnusableFileError(f"the file ends before entry {entry_number}")
        return parse_entry(data, 0)
