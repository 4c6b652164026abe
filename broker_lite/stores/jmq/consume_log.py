"""Log of consume records in the folder `consume/` of a store, which archives read.

Records expire with their messages: a file is deleted when all messages stored before its last write are deleted.

The records do not affect deliveries: if the machine crashes, the last records and positions may be lost, and their
messages are then delivered again.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.record_log import RecordLog
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.consume_records import FOLDER, MAX_RECORD_SIZE, Consumption, parse_consumption


class ConsumeLog(RecordLog):
    """Log of consume records, which state who has consumed what; the caller holds the store's lock."""

    def __init__(self, root: Path, file_size: int, mappings: MappedFiles) -> None:
        """Open the files, and find the end of the last one.

        Raises:
            StoreFilesError: if they do not have the given size, or one is missing.
        """
        files = FileQueue(root / FOLDER, file_size, "consume_file_size_bytes", mappings)
        super().__init__(files, end_reserve=0, max_record_bytes=MAX_RECORD_SIZE)
        if not self.files.is_empty:
            self._find_end()

    def _find_end(self) -> None:
        """Find the end of the log's last valid record, and clear everything after it."""
        start = end = self.files.file_starts[-1]
        while (found := self._parse_record_at(end)) is not None:
            end += found[1]
            if end == start + self.files.file_size:
                break
        self.files.truncate(end)
        self._clear_after_end()

    def _fill_rest_of_file(self) -> None:
        """Move the log's end to the next file; the rest of the last file stays zeros."""
        self.files.end += self.files.free_bytes

    def _parse_record_at(self, offset: int) -> tuple[Consumption, int] | None:
        memory, position = self.files.locate(offset)
        try:
            return parse_consumption(memory[position : position + MAX_RECORD_SIZE])
        except LayoutError:
            return None

    def delete_expired(self, last_write_seconds: float) -> None:
        """Delete the files that were last written to before a time.

        Args:
            last_write_seconds: time of the last write to the newest deleted journal file, s since 1970.
        """
        old = takewhile(lambda modified: modified <= last_write_seconds, self.files.modification_times())
        # The last file is still being written.
        self.files.delete_oldest_files(min(len(list(old)), max(0, len(self.files.file_starts) - 1)))

    def read(self, offset: int, end: int, max_records: int) -> tuple[list[Consumption], int]:
        """Return consume records from an offset on, and the offset to continue at.

        Args:
            offset: 0, or the offset that the last call returned.
            end: offset up to which records are returned.
            max_records: maximum number of records.

        Returns:
            The records, and the offset to continue at.
        """
        found: list[Consumption] = []
        offset = max(offset, self.files.start)
        while offset < end and len(found) < max_records:
            parsed = self._parse_record_at(offset)
            if parsed is None:
                # The rest of the file is zeros or damaged, so the start of a next record in it is unknown.
                following = self.files.file_end(offset)
                if following > end:
                    break
                offset = following
                continue
            if offset + parsed[1] > end:
                break
            found.append(parsed[0])
            offset += parsed[1]
        return found, offset
