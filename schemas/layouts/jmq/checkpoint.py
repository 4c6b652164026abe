"""File `checkpoint` of a JMQ store: the offsets up to which journal and queues were on disk at its last write.

36 bytes, big-endian, at the start of a file of 4,096. JMQ does not publish its own format; this one is this project's,
and a store without the file is recovered from its journal.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from commitlake.schemas.layouts.base import PAGE_SIZE, Field, Layout, pad_to_page

FILE_NAME = "checkpoint"
FILE_SIZE = PAGE_SIZE

LAYOUT = Layout(
    Field("journal_end", "Q", "journal offset of the end of the last record on disk"),
    Field("last_record", "Q", "journal offset of that record"),
    Field("store_timestamp", "q", "store time of that record, ms"),
    Field("entries", "Q", "sum of the next queue offsets of all queues"),
    Field("crc", "I", "CRC-32 of the bytes before it"),
)
_COVERED = Layout(*LAYOUT.fields[:-1])
assert LAYOUT.size == 36


class JournalCheckpoint(NamedTuple):
    """Values of the journal's checkpoint file; all are 0 in a new store."""

    journal_end: int = 0
    last_record: int = 0
    store_timestamp: int = 0
    entries: int = 0


def parse_journal_checkpoint(data: bytes) -> JournalCheckpoint | None:
    """Parse the checkpoint in a file's bytes; return None if they are invalid."""
    if len(data) < LAYOUT.size:
        return None
    *values, crc = LAYOUT.unpack(data)
    return JournalCheckpoint(*values) if crc == zlib.crc32(data[: _COVERED.size]) else None


def serialize_journal_checkpoint(checkpoint: JournalCheckpoint) -> bytes:
    """Return the content of the whole checkpoint file, 4,096 bytes."""
    covered = _COVERED.pack(*checkpoint)
    return pad_to_page(covered + zlib.crc32(covered).to_bytes(4, "big"))
