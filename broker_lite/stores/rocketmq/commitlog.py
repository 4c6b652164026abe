"""CommitLog, which contains all messages of all topics in segment files.

The last 8 bytes of a segment are reserved for the BLANK that fills it. Source: CommitLog.DefaultAppendMessageCallback.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.record_log import MessageLog
from commitlake.broker_lite.stores.rocketmq.options import RECORD_ALLOWANCE_BYTES, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS, MESSAGE_MAGICS, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import (
    BLANK,
    END_RESERVE,
    HEAD,
    MIN_RECORD_SIZE,
    STORED,
    Message,
    detect_segment_dialect,
    parse_message,
    serialize_blank,
)
from commitlake.schemas.layouts.rocketmq.hosts import host_size
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6
from commitlake.schemas.layouts.segment_names import is_segment_name
from commitlake.schemas.safe_store_files import files_in, open_file

FOLDER = "commitlog"
_HEAD_NAMES = [field.name for field in HEAD.fields]
_OWN_OFFSET = _HEAD_NAMES.index("physical_offset")
_SYS_FLAG = _HEAD_NAMES.index("sys_flag")


def dialect_of(root: Path) -> Dialect | None:
    """Return the dialect of the store in a folder, from its first records; None if they are missing or damaged."""
    folder = root / FOLDER
    for name in sorted(files_in(folder, is_segment_name), key=int):
        with os.fdopen(open_file(folder / name), "rb") as file:
            dialect = detect_segment_dialect(partial(os.pread, file.fileno(), BLANK.size))
        if dialect is not None:
            return dialect
    return None


class CommitLog(MessageLog[Message]):
    """Log of a store's records in segment files."""

    filler = BLANK
    offset_field = "physical_offset"

    def __init__(self, root: Path, options: StoreOptions, mappings: MappedFiles) -> None:
        """Open the segments of the store at `root`; `files.truncate` must set the end of the log.

        Raises:
            StoreFilesError: if the files do not have the size of the options, one is missing, or they begin with a
            record of another dialect.
        """
        files = FileQueue(root / FOLDER, options.segment_size_bytes, "segment_size_bytes", mappings)
        super().__init__(files, END_RESERVE, options.max_message_size_bytes + RECORD_ALLOWANCE_BYTES)
        self._dialect = options.dialect
        found = dialect_of(root)
        if found not in (None, self._dialect):
            raise StoreFilesError(f"{root}: expected a log of {self._dialect.name}, found one of {found.name}")

    def append_copy(self, physical_offset: int, data: bytes) -> None:
        """Append bytes of another log at the same offset; an empty log first starts at the segment that contains it.

        Raises:
            DiskFullError: if the disk has no room for the next segment.
        """
        if self.files.is_empty:
            self.files.set_start(physical_offset)
        assert physical_offset == self.end, "expected an append at the end of the log"
        if not self._rest_is_clear:
            self._clear_after_end()
        self.files.append(data)

    def truncate_at(self, physical_offset: int) -> None:
        """Truncate the log to an offset; the next append erases the bytes after it."""
        self.files.truncate(physical_offset)
        self._rest_is_clear = False

    def truncate_to_confirmed_record(self, last_record_offset: int, confirmed_timestamp: int) -> None:
        """Truncate a copied log to the end of the last record that the checkpoint confirms.

        A copy grows by arbitrary numbers of bytes. An incomplete last record can look valid, because its checksum
        covers only the body; the copy would then differ from the master's log forever.

        Args:
            last_record_offset: physical offset of the last record that the checkpoint confirms. Brokers that do not
                store it leave 0: then the last segment is dropped or, if it is the only one, everything after its first
                record. Without that record a master would start with its newest segment.
            confirmed_timestamp: store time of that record in the checkpoint.
        """
        if self.files.is_empty:
            return
        known = self.message_at(last_record_offset) if self.start <= last_record_offset < self.end else None
        # 0 is also in a checkpoint that confirms nothing, so more must speak for the first record of a log.
        if last_record_offset == 0 and known is not None:
            is_vouched_for = len(self.files.file_starts) == 1 and 0 < known.store_timestamp <= confirmed_timestamp
            known = known if is_vouched_for else None
        self.files.truncate(self.files.file_starts[-1] if known is None else last_record_offset + known.size)

    def _fill_rest_of_file(self) -> None:
        """Mark the rest of the last file as unused, by a BLANK record of which only 8 bytes are written."""
        room = self.files.free_bytes
        self.files.append(serialize_blank(room, self._dialect))
        self.files.end += room - BLANK.size

    def is_blank_at(self, physical_offset: int) -> bool:
        """Return whether a BLANK record, which marks the rest of a file as unused, begins at an offset."""
        memory, position = self.files.locate(physical_offset)
        return len(memory) - position >= BLANK.size and BLANK.unpack(memory, position)[1] in BLANK_MAGICS

    def _parse_record(self, record: bytes, *, verify_crc: bool) -> tuple[Message, int] | None:
        return parse_message(record, verify_crc=verify_crc)

    def store_timestamp_at(self, physical_offset: int) -> int | None:
        """Return the store time of the message whose record begins at an offset, or None if there is no record.

        The body is not read.
        """
        if not self.start <= physical_offset <= self.end - BLANK.size:
            return None
        memory, position = self.files.locate(physical_offset)
        if len(memory) - position < MIN_RECORD_SIZE:
            return None
        head = HEAD.unpack(memory, position)
        size, magic, own, sys_flag = head[0], head[1], head[_OWN_OFFSET], head[_SYS_FLAG]
        if (
            magic not in MESSAGE_MAGICS
            or own != physical_offset
            or not MIN_RECORD_SIZE <= size <= len(memory) - position
        ):
            return None
        stored_at = position + HEAD.size + host_size(is_v6=bool(sys_flag & BORN_HOST_V6))
        timestamp: int = STORED.unpack(memory, stored_at)[0]
        return timestamp
