"""Logs of records, and of messages, in files of one size; no record crosses the end of a file.

The last bytes of a file are reserved. If a record and these bytes no longer fit, filler of the layout fills the rest of
the file, and the record goes to the next file. Records that must stay together are in one file, or all go to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.errors import LayoutError


class RecordLog(ABC):
    """Log of records, in files of equal size.

    Attributes:
        files: files of the log.
        max_record_bytes: maximum size of a record.
    """

    def __init__(self, files: FileQueue, end_reserve: int, max_record_bytes: int) -> None:
        """Create a log on the given files; call `files.truncate` to set the end of the log.

        Args:
            files: files as they were found.
            end_reserve: reserved bytes at the end of a file.
            max_record_bytes: maximum size by the options; a file may have less room.
        """
        self.files = files
        self.max_record_bytes = min(files.file_size - end_reserve, max_record_bytes)
        self._end_reserve = end_reserve
        self._rest_is_clear = False

    @property
    def start(self) -> int:
        """Offset of the first byte of the log."""
        return self.files.start

    @property
    def end(self) -> int:
        """Offset of the end of the log's last record."""
        return self.files.end

    def check_size(self, size: int) -> None:
        """Raise an error if records that must stay together do not fit in one file.

        Raises:
            MessageRefusedError: if they do not fit.
        """
        if size > (largest := self.files.file_size - self._end_reserve):
            raise MessageRefusedError(
                f"the record of the message has {size} bytes, expected at most {largest}, which fit in a file of "
                f"{self.files.file_size} bytes"
            )

    def append(
        self, records: Sequence[bytes | bytearray], set_record_offsets: Callable[[int], None] | None = None
    ) -> int:
        """Append records that must stay together in one file, after `check_size` has accepted their size.

        Args:
            records: records as they are at the log's end.
            set_record_offsets: updates the records for another offset, without changing their sizes. None if records
                do not contain their offset.

        Returns:
            Offset of the first record.

        Raises:
            DiskFullError: if the disk has no room for the next file.
        """
        if not self._rest_is_clear:
            self._clear_after_end()
        # With 0, the record begins a new file in any case.
        if 0 < self.files.free_bytes < sum(map(len, records)) + self._end_reserve:
            self._fill_rest_of_file()
            # The records go to the next file, so they get other offsets than they have now.
            if set_record_offsets is not None:
                set_record_offsets(self.end)
        offset = self.end
        self.files.append(records[0] if len(records) == 1 else b"".join(records))
        return offset

    @abstractmethod
    def _fill_rest_of_file(self) -> None:
        """Fill the rest of the last file, so that readers continue in the next file."""

    def _clear_after_end(self) -> None:
        """Overwrite the bytes after the end of the log with zeros, before the first append after recovery.

        RocketMQ does not. But if a new record is exactly as long as the damaged one that it replaces, old records would
        follow it without a gap, and the next recovery would take them for new ones.
        """
        self.files.clear_after_end()
        self._rest_is_clear = True


class StoredMessage(Protocol):
    """Interface of a message stored in a log."""

    @property
    def size(self) -> int:
        """Size of the record in bytes."""

    @property
    def store_timestamp(self) -> int:
        """Store time, ms since 1970."""


M = TypeVar("M", bound=StoredMessage)


class MessageLog(RecordLog, Generic[M]):
    """Log of messages, which are checked when they are read: each record contains its own offset.

    Attributes:
        filler: layout of the bytes that fill the rest of a file; the first field is their size, as in a record.
        offset_field: name of the field in which records and messages contain their offset.
    """

    filler: ClassVar[Layout]
    offset_field: ClassVar[str]

    @abstractmethod
    def _parse_record(self, record: bytes, *, verify_crc: bool) -> tuple[M, int] | None:
        """Parse a record.

        Args:
            record: bytes of the size that it claims, or up to the end of its file.
            verify_crc: whether the body is verified against its checksum.

        Returns:
            The message and its size; None if the record is incomplete.
        """

    def _record_bytes_at(self, offset: int) -> bytes:
        """Return the bytes of the record at an offset; its size field is not trusted beyond the end of the file."""
        memory, position = self.files.locate(offset)
        head_size = self.filler.size
        size = self.filler.unpack(memory, position)[0] if len(memory) - position >= head_size else 0
        # A damaged size may be smaller than the head, or negative.
        return memory[position : position + max(size, head_size)]

    def parse_at(self, offset: int, *, verify_crc: bool = True) -> M:
        """Return the message whose record begins at an offset; raise an error if there is none.

        Raises:
            LayoutError: if there is no complete, valid record.
        """
        if not self.start <= offset <= self.end - self.filler.size:
            raise LayoutError("magic", offset, f"a record from {self.start} to {self.end}", "an offset outside")
        try:
            parsed = self._parse_record(self._record_bytes_at(offset), verify_crc=verify_crc)
        except LayoutError as error:
            raise LayoutError(error.field, offset + error.offset, error.expected, error.found) from None
        if parsed is None or offset + parsed[1] > self.end:
            raise LayoutError("total_size", offset, "a record within its file", "one that crosses its end")
        message = parsed[0]
        if (own := getattr(message, self.offset_field)) != offset:
            raise LayoutError(self.offset_field, offset, f"{offset}", f"{own}")
        return message

    def message_at(self, offset: int, *, verify_crc: bool = True) -> M | None:
        """Return the message whose record begins at an offset, or None if there is no complete, valid record."""
        try:
            return self.parse_at(offset, verify_crc=verify_crc)
        except LayoutError:
            return None

    def store_timestamp_at(self, offset: int) -> int | None:
        """Return the store time of the message whose record begins at an offset, or None if there is no record.

        The checksum of the body is not verified.
        """
        message = self.message_at(offset, verify_crc=False)
        return None if message is None else message.store_timestamp
