"""Log of a store's messages: each record contains its own offset, and is verified before it is returned."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

from commitlake.broker_lite.stores.engine.record_log import RecordLog
from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.errors import LayoutError


class StoredMessage(Protocol):
    """Message as it is stored in a log."""

    @property
    def size(self) -> int:
        """Size of the record in bytes."""

    @property
    def store_timestamp(self) -> int:
        """Store time, ms since 1970."""


M = TypeVar("M", bound=StoredMessage)


class MessageLog(RecordLog, Generic[M]):
    """Log of messages in one layout.

    Attributes:
        filler: layout that fills the rest of a file; its first field is its size, as in a record.
        offset_field: field of records and messages with their own offset.
    """

    filler: ClassVar[Layout]
    offset_field: ClassVar[str]

    @abstractmethod
    def _parse(self, record: bytes, *, verify_crc: bool) -> tuple[M, int] | None:
        """Parse a record.

        Args:
            record: bytes of the size that it claims, or up to the end of its file.
            verify_crc: whether the body is verified against its checksum.

        Returns:
            The message and its size; None if the record is incomplete.
        """

    def _bytes_at(self, offset: int) -> bytes:
        """Return the bytes that a record claims, at most to the end of its file, so that a forged size does no harm."""
        memory, position = self.files.locate(offset)
        head_size = self.filler.size
        size = self.filler.unpack(memory, position)[0] if len(memory) - position >= head_size else 0
        return memory[position : position + max(size, head_size)]

    def parse_at(self, offset: int, *, verify_crc: bool = True) -> M:
        """Return the message whose record begins at an offset.

        Raises:
            LayoutError: if there is no complete, valid record.
        """
        if not self.start <= offset <= self.end - self.filler.size:
            raise LayoutError("magic", offset, f"a record from {self.start} to {self.end}", "an offset outside")
        try:
            parsed = self._parse(self._bytes_at(offset), verify_crc=verify_crc)
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
