"""Log of records in files of one size; no record crosses the end of a file.

The last bytes of a file are reserved. If a record and these bytes no longer fit, filler of the layout fills the rest of
the file, and the record goes to the next file. Records that must stay together are in one file, or all go to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue


class RecordLog(ABC):
    """Log of a store.

    Attributes:
        files: files of the log.
        max_record_bytes: maximum size of a record.
    """

    def __init__(self, files: FileQueue, end_reserve: int, max_record_bytes: int) -> None:
        """Use the given files; `files.truncate` must set the end of the log.

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
        """Offset of the first byte."""
        return self.files.start

    @property
    def end(self) -> int:
        """Offset of the end of the last record."""
        return self.files.end

    def check_size(self, size: int) -> None:
        """Check that records that must stay together fit in a file.

        Raises:
            MessageRefusedError: if they do not fit.
        """
        if size > (largest := self.files.file_size - self._end_reserve):
            raise MessageRefusedError(
                f"record: expected at most {largest} bytes, for a file of {self.files.file_size}, found {size}"
            )

    def append(self, records: Sequence[bytes | bytearray], relocate: Callable[[int], None] | None = None) -> int:
        """Append records that must stay together, and whose size was checked.

        Args:
            records: records as they are at the log's end.
            relocate: updates the records for another offset, without changing their sizes. None if records do not
                contain their offset.

        Returns:
            Offset of the first record.

        Raises:
            DiskFullError: if the disk has no room for the next file.
        """
        if not self._rest_is_clear:
            self._clear_rest()
        if 0 < self.files.room < sum(map(len, records)) + self._end_reserve:
            self._fill_file()
            if relocate is not None:
                relocate(self.end)
        offset = self.end
        self.files.append(records[0] if len(records) == 1 else b"".join(records))
        return offset

    @abstractmethod
    def _fill_file(self) -> None:
        """Fill the rest of the last file with a marker that sends readers to the next file."""

    def _clear_rest(self) -> None:
        """Erase what recovery left after the end of the log, before the first append.

        RocketMQ does not. But if a new record is exactly as long as the damaged one that it replaces, old records would
        follow it without a gap, and the next recovery would take them for new ones.
        """
        self.files.clear_rest()
        self._rest_is_clear = True
