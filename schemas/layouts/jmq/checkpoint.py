"""`checkpoint` of a JMQ store: up to where journal and queues were on the disk when it was last written.

36 bytes, big-endian, at the start of a file of 4,096. JMQ does not publish how a broker remembers this; the file is
this project's, and a store without it is recovered from its journal.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout
from commitlake.schemas.layouts.page import PAGE_SIZE, serialize_page

FILE_NAME = "checkpoint"
FILE_SIZE = PAGE_SIZE

LAYOUT = Layout(
    Field("journal_end", "Q", "journal offset behind the last record that is on the disk"),
    Field("last_record", "Q", "journal offset of that record"),
    Field("store_timestamp", "q", "of that record, ms"),
    Field("entries", "Q", "next queue offsets of all queues, added up"),
    Field("crc", "I", "CRC-32 of the bytes before it"),
)
_COVERED = Layout(*LAYOUT.fields[:-1])
assert LAYOUT.size == 36


class JournalCheckpoint(NamedTuple):
    """The file's values; those of a new store are zeros."""

    journal_end: int = 0
    last_record: int = 0
    store_timestamp: int = 0
    entries: int = 0


def parse_journal_checkpoint(data: bytes) -> JournalCheckpoint | None:
    """The checkpoint in a file's bytes; None where they are none, which then vouch for nothing."""
    if len(data) < LAYOUT.size:
        return None
    *values, crc = LAYOUT.unpack(data)
    return JournalCheckpoint(*values) if crc == zlib.crc32(data[: _COVERED.size]) else None


def serialize_journal_checkpoint(checkpoint: JournalCheckpoint) -> bytes:
    """The whole file, 4,096 bytes."""
    covered = _COVERED.pack(*checkpoint)
    return serialize_page(covered + zlib.crc32(covered).to_bytes(4, "big"))
