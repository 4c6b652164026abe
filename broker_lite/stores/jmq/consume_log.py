"""The consume records of a store, one after another in `consume/`; the archive's agent reads them.

Records go with the messages that they tell of: a file is deleted once no message is left that had been stored when it
was written to last.

They are no part of what a consumer is given: if the machine fails, records of the last moments may be lost, as may the
positions that go with them, and the messages are given out again.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.engine.record_log import RecordLog
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.consumption import FOLDER, MAX_RECORD_SIZE, Consumption, parse_consumption


class ConsumeLog(RecordLog):
    """The files of consume records; the caller holds the store's lock."""

    def __init__(self, root: Path, file_size: int, mappings: Mappings) -> None:
        """Open the files, and find the end of the last.

        Raises:
            StoreFilesError: if they do not have the size given, or one is missing.
        """
        files = FileQueue(root / FOLDER, file_size, "consume_file_size_bytes", mappings)
        super().__init__(files, end_reserve=0, max_record_bytes=MAX_RECORD_SIZE)
        if not self.files.is_empty:
            self._find_end()

    def _find_end(self) -> None:
        """The last file ends behind its last record; a file without one behind the file before it."""
        start = end = self.files.file_starts[-1]
        while (found := self._parse(end)) is not None:
            end += found[1]
            if end == start + self.files.file_size:
                break
        self.files.truncate(end)
        self._clear_rest()

    def _fill_file(self) -> None:
        """Leave zeros."""
        self.files.end += self.files.room

    def _parse(self, offset: int) -> tuple[Consumption, int] | None:
        memory, position = self.files.locate(offset)
        try:
            return parse_consumption(memory[position : position + MAX_RECORD_SIZE])
        except LayoutError:
            return None

    def delete_expired(self, written_seconds: float) -> None:
        """Remove the files that were not written to since the last message was stored that is gone.

        Args:
            written_seconds: when that was, s since 1970.
        """
        old = takewhile(lambda modified: modified <= written_seconds, self.files.modified_seconds())
        # The last one is still being written.
        self.files.delete_first(min(len(list(old)), max(0, len(self.files.file_starts) - 1)))

    def read(self, offset: int, end: int, max_records: int) -> tuple[list[Consumption], int]:
        """Records from an offset on.

        Args:
            offset: 0, or what the last call gave.
            end: no record that ends behind it is given.
            max_records: how many at most.

        Returns:
            The records, and where to go on.
        """
        found: list[Consumption] = []
        offset = max(offset, self.files.start)
        while offset < end and len(found) < max_records:
            parsed = self._parse(offset)
            if parsed is None:
                # The rest of a file is zeros, or damaged: nothing says where the next record would begin.
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
