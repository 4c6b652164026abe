"""Journal: all messages of all topics in files of one size.

The last 6 bytes of a file are reserved for the FILLER; if fewer are left, nothing is written there.
"""

from __future__ import annotations

import logging
from pathlib import Path

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.record_log import MessageLog
from commitlake.broker_lite.stores.jmq.options import RECORD_ALLOWANCE_BYTES, JournalOptions
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import (
    END_RESERVE,
    FILLER,
    FOLDER,
    JournalMessage,
    Magic,
    parse_message,
    serialize_filler,
)
from commitlake.schemas.layouts.jmq.scan import JournalScanner
from commitlake.schemas.layouts.rocketmq.scan import SizeLimits, SpanKind

_SEARCH_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class Journal(MessageLog[JournalMessage]):
    """Files of a store's journal, the log of all of its messages.

    Attributes:
        lost_bytes: number of damaged bytes that `next_message` has skipped.
    """

    filler = FILLER
    offset_field = "journal_offset"

    def __init__(self, root: Path, options: JournalOptions, mappings: MappedFiles) -> None:
        """Open the files of the store at `root`; `files.truncate` must set the end of the journal.

        Raises:
            StoreFilesError: if the files do not have the size of the options, or one is missing.
        """
        files = FileQueue(root / FOLDER, options.journal_file_size_bytes, "journal_file_size_bytes", mappings)
        super().__init__(files, END_RESERVE, options.max_body_size_bytes + RECORD_ALLOWANCE_BYTES)
        self.lost_bytes = 0

    def _fill_rest_of_file(self) -> None:
        room = self.files.free_bytes
        if room >= FILLER.size:
            self.files.append(serialize_filler(room))
            room -= FILLER.size
        self.files.end += room

    def _parse_record(self, record: bytes, *, verify_crc: bool) -> tuple[JournalMessage, int] | None:
        parsed = parse_message(record, verify_crc=verify_crc)
        if parsed is not None and not parsed[0].topic:
            raise LayoutError("topic_length", 0, "1 to 255", "0")
        return parsed

    def next_message(self, position: int, confirmed_end: int) -> JournalMessage:
        """Return the first message at or after an offset; damage before `confirmed_end` is skipped with a warning.

        The search continues in the next file if this one has ended. Damage before `confirmed_end` is logged and
        skipped, up to the next valid record.

        Args:
            position: offset at which a record should begin.
            confirmed_end: offset up to which the journal is known to have been written.

        Raises:
            LayoutError: at the end of the journal; describes what is there.
        """
        while True:
            try:
                return self.parse_at(position)
            except LayoutError as error:
                following = self._next_file_after_filler(position)
                if following is None and position < confirmed_end:
                    following = self._next_record_after_damage(position)
                    if following is not None:
                        self.lost_bytes += following - position
                        _logger.warning("the journal is damaged from %d to %d, skipped: %s", position, following, error)
                if following is None or following >= self.end:
                    raise
                position = following

    def _next_file_after_filler(self, position: int) -> int | None:
        """Return the start of the next file if only filler follows the position in this one, else None."""
        if not self.start <= position < self.end:
            return None
        memory, at = self.files.locate(position)
        if len(memory) - at < FILLER.size:
            return None if any(memory[at:]) else self.files.file_end(position)
        is_filler = FILLER.unpack(memory, at) == (len(memory) - at, Magic.FILLER)
        return self.files.file_end(position) if is_filler else None

    def _next_record_after_damage(self, position: int) -> int | None:
        """Return the offset of the next valid record in this file, else the start of the next file, or None."""
        end = self.files.file_end(position)
        scanner, size = JournalScanner(position, SizeLimits(end, end)), _SEARCH_BYTES
        while not scanner.done:
            before = scanner.position
            memory, at = self.files.locate(before)
            for span in scanner.feed(memory[at : at + size]):
                if span.kind is SpanKind.RECORD:
                    return span.start
            if scanner.position == before:
                size *= 2
        return end if end < self.end else None
