"""Records one after another in files of one size, none across the end of a file.

The last bytes of a file are reserved: where a record and they do not fit any more, what the layout puts there fills the
file, and the record goes to the next one. Records that must stand together are in one file, or all of them go to the
next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue


class RecordLog(ABC):
    """The log of a store.

    Attributes:
        files: its files.
        max_record_bytes: no record is larger.
    """

    def __init__(self, files: FileQueue, end_reserve: int, max_record_bytes: int) -> None:
        """Take the files; `files.truncate` must tell where the log ends.

        Args:
            files: as they were found.
            end_reserve: bytes at a file's end that no record takes.
            max_record_bytes: what the options say; a file may have less room.
        """
        self.files = files
        self.max_record_bytes = min(files.file_size - end_reserve, max_record_bytes)
        self._end_reserve = end_reserve
        self._rest_is_clear = False

    @property
    def start(self) -> int:
        """Offset of the first byte that is kept."""
        return self.files.start

    @property
    def end(self) -> int:
        """Offset behind the last record."""
        return self.files.end

    def check_size(self, size: int) -> None:
        """Refuse records that must stand together and cannot.

        Raises:
            MessageRefusedError: if a file has less room.
        """
        if size > (largest := self.files.file_size - self._end_reserve):
            raise MessageRefusedError(
                f"record: expected at most {largest} bytes, for a file of {self.files.file_size}, found {size}"
            )

    def append(self, records: Sequence[bytes | bytearray], relocate: Callable[[int], None] | None = None) -> int:
        """Append records that must stand together, and whose size was checked.

        Args:
            records: as they are at the log's end.
            relocate: makes them what they are at another offset; their sizes do not depend on it. None for records
                that do not say where they are.

        Returns:
            The offset of the first record.

        Raises:
            DiskFullError: if there is no room for the next file.
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
        """Fill the last file with what tells a reader to go on in the next one."""

    def _clear_rest(self) -> None:
        """Erase what recovery has left behind the log's end, at the first append.

        RocketMQ does not. But where a new record is as long as the broken one that it replaces, the old records behind
        it would follow it without a gap, and the next recovery would take them for new ones.
        """
        self.files.clear_rest()
        self._rest_is_clear = True
