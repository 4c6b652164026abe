"""The CommitLog: every message of every topic, one after another, in segments.

A record never crosses the end of a segment, and the last 8 bytes of a segment are reserved: where a record and those 8
bytes do not fit any more, a BLANK is written and the record goes to the next segment. The records of a batch stand in
one segment, or all of them go to the next one. Source: CommitLog.DefaultAppendMessageCallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from broker_lite.store.errors import MessageRefusedError
from broker_lite.store.file_queue import FileQueue
from broker_lite.store.mapped_file import Mappings
from broker_lite.store.options import RECORD_ALLOWANCE_BYTES, StoreOptions
from schemas.layouts.commitlog import BLANK, END_RESERVE, Magic, Message, parse_message, serialize_blank
from schemas.layouts.errors import LayoutError

FOLDER = "commitlog"


class CommitLog:
    """The segments of a store.

    Attributes:
        files: the segments.
        max_record_bytes: no record is larger.
    """

    def __init__(self, root: Path, options: StoreOptions, mappings: Mappings) -> None:
        """Open the segments of the store at `root`; `files.truncate` must tell where the log ends.

        Raises:
            StoreFilesError: if the files do not have the size of the options, or one is missing.
        """
        size = options.segment_size_bytes
        self.files = FileQueue(root / FOLDER, size, "segment_size_bytes", mappings)
        self.max_record_bytes = min(size - END_RESERVE, options.max_message_size_bytes + RECORD_ALLOWANCE_BYTES)
        self._rest_is_clear = False

    @property
    def start(self) -> int:
        """Physical offset of the first byte that is kept."""
        return self.files.start

    @property
    def end(self) -> int:
        """Physical offset behind the last record."""
        return self.files.end

    def check_size(self, size: int) -> None:
        """Refuse records that must stand together and cannot.

        Raises:
            MessageRefusedError: if a segment has less room.
        """
        if size > (largest := self.files.file_size - END_RESERVE):
            raise MessageRefusedError(
                f"record: expected at most {largest} bytes, for a segment of {self.files.file_size}, found {size}"
            )

    def append(self, records: Sequence[bytes | bytearray], relocate: Callable[[int], None]) -> int:
        """Append records that must stand together, and whose size was checked.

        Args:
            records: as they are at the log's end.
            relocate: makes them what they are at another physical offset; their sizes do not depend on it.

        Returns:
            The physical offset of the first record.

        Raises:
            DiskFullError: if there is no room for the next segment.
        """
        if not self._rest_is_clear:
            self._clear_rest()
        if 0 < self.files.room < sum(map(len, records)) + END_RESERVE:
            self._fill_segment()
            relocate(self.end)
        offset = self.end
        self.files.append(records[0] if len(records) == 1 else b"".join(records))
        return offset

    def append_copy(self, physical_offset: int, data: bytes) -> None:
        """Append bytes of another log, which stand at the same offset there; an empty log begins with their segment.

        Raises:
            DiskFullError: if there is no room for the next segment.
        """
        if self.files.is_empty:
            self.files.begin_at(physical_offset)
        assert physical_offset == self.end, "a copy has no gap"
        if not self._rest_is_clear:
            self._clear_rest()
        self.files.append(data)

    def cut(self, physical_offset: int) -> None:
        """Let the log end at an offset; what stood behind it is erased by the next append."""
        self.files.truncate(physical_offset)
        self._rest_is_clear = False

    def drop_doubtful(self, last_record: int, vouched_timestamp: int) -> None:
        """Let a copy of a log end behind a record that is known to be whole.

        A copy grows by any number of bytes. What is here of a last record can pass for all of it, its checksum leaving
        out everything but the body: it would stay different from the master's for ever.

        Args:
            last_record: physical offset of the last record that the checkpoint vouches for; 0 in those of brokers that
                do not tell: the last segment is in doubt then, or where there is no other, what is behind its first
                record. Without that one a master would begin with its newest segment.
            vouched_timestamp: store time of that record, as the checkpoint has it.
        """
        if self.files.is_empty:
            return
        known = self.message_at(last_record) if self.start <= last_record < self.end else None
        if last_record == 0 and known is not None:
            is_vouched_for = len(self.files.file_starts) == 1 and 0 < known.store_timestamp <= vouched_timestamp
            known = known if is_vouched_for else None
        self.files.truncate(self.files.file_starts[-1] if known is None else last_record + known.size)

    def _clear_rest(self) -> None:
        """Erase what recovery has left behind the log's end, at the first append.

        RocketMQ does not. But where a new record is as long as the broken one that it replaces, the old records behind
        it would follow it without a gap, and the next recovery would take them for new ones.
        """
        self.files.clear_rest()
        self._rest_is_clear = True

    def _fill_segment(self) -> None:
        """Write the BLANK; only its 8 bytes change, however much room it declares."""
        room = self.files.room
        self.files.append(serialize_blank(room))
        self.files.end += room - BLANK.size

    def is_blank_at(self, physical_offset: int) -> bool:
        """Whether a BLANK stands at an offset; as the broker does, its size is not looked at."""
        memory, position = self.files.locate(physical_offset)
        return len(memory) - position >= BLANK.size and BLANK.unpack(memory, position)[1] == Magic.BLANK

    def parse_at(self, physical_offset: int, *, verify_crc: bool = True) -> Message:
        """The message whose record begins at an offset.

        Raises:
            LayoutError: if no whole record proves itself there.
        """
        if not self.start <= physical_offset <= self.end - BLANK.size:
            raise LayoutError(
                "magic", physical_offset, f"a record from {self.start} to {self.end}", "an offset outside"
            )
        try:
            parsed = parse_message(self._bytes_at(physical_offset), verify_crc=verify_crc)
        except LayoutError as error:
            raise LayoutError(error.field, physical_offset + error.offset, error.expected, error.found) from None
        if parsed is None:
            raise LayoutError(
                "total_size", physical_offset, "a record within its segment", "one that goes on behind it"
            )
        if (own := parsed[0].physical_offset) != physical_offset:
            raise LayoutError("physical_offset", physical_offset, f"{physical_offset}", f"{own}")
        return parsed[0]

    def _bytes_at(self, physical_offset: int) -> bytes:
        """The bytes that a record claims; of a segment's memory, so a lie about the size costs no more than that."""
        memory, position = self.files.locate(physical_offset)
        size = BLANK.unpack(memory, position)[0] if len(memory) - position >= BLANK.size else 0
        return memory[position : position + max(size, BLANK.size)]

    def message_at(self, physical_offset: int, *, verify_crc: bool = True) -> Message | None:
        """The message whose record begins at an offset; None where no whole record proves itself there."""
        try:
            return self.parse_at(physical_offset, verify_crc=verify_crc)
        except LayoutError:
            return None
