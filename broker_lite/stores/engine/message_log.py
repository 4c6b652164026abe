"""The log of a store's messages: each record says its own offset, and proves itself before it is handed out."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

from commitlake.broker_lite.stores.engine.record_log import RecordLog
from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.errors import LayoutError


class StoredMessage(Protocol):
    """A message as a log has it."""

    @property
    def size(self) -> int:
        """Bytes of its record."""

    @property
    def store_timestamp(self) -> int:
        """When it was stored, ms."""


M = TypeVar("M", bound=StoredMessage)


class MessageLog(RecordLog, Generic[M]):
    """The log, of messages of one layout.

    Attributes:
        filler: what fills a file; its first field is its size, as a record's is.
        offset_field: the field in which a record says its own offset, and a message.
    """

    filler: ClassVar[Layout]
    offset_field: ClassVar[str]

    @abstractmethod
    def _parse(self, record: bytes, *, verify_crc: bool) -> tuple[M, int] | None:
        """Parse a record.

        Args:
            record: the bytes that it claims, or as many as its file has.
            verify_crc: whether its body is compared with its checksum.

        Returns:
            The message and its size; None where the record goes on.

        Raises:
            LayoutError: if the bytes are no record.
        """

    def _bytes_at(self, offset: int) -> bytes:
        """The bytes that a record claims; of a file's memory, so a lie about the size costs no more than that."""
        memory, position = self.files.locate(offset)
        head_size = self.filler.size
        size = self.filler.unpack(memory, position)[0] if len(memory) - position >= head_size else 0
        return memory[position : position + max(size, head_size)]

    def parse_at(self, offset: int, *, verify_crc: bool = True) -> M:
        """The message whose record begins at an offset.

        Raises:
            LayoutError: if no whole record proves itself there.
        """
        if not self.start <= offset <= self.end - self.filler.size:
            raise LayoutError("magic", offset, f"a record from {self.start} to {self.end}", "an offset outside")
        try:
            parsed = self._parse(self._bytes_at(offset), verify_crc=verify_crc)
        except LayoutError as error:
            raise LayoutError(error.field, offset + error.offset, error.expected, error.found) from None
        if parsed is None or offset + parsed[1] > self.end:
            raise LayoutError("total_size", offset, "a record within its file", "one that goes on behind it")
        message = parsed[0]
        if (own := getattr(message, self.offset_field)) != offset:
            raise LayoutError(self.offset_field, offset, f"{offset}", f"{own}")
        return message

    def message_at(self, offset: int, *, verify_crc: bool = True) -> M | None:
        """The message whose record begins at an offset; None where no whole record proves itself there."""
        try:
            return self.parse_at(offset, verify_crc=verify_crc)
        except LayoutError:
            return None

    def store_timestamp_at(self, offset: int) -> int | None:
        """When the message whose record begins at an offset was stored; None where no record does.

        Neither the body nor its checksum is compared.
        """
        message = self.message_at(offset, verify_crc=False)
        return None if message is None else message.store_timestamp
