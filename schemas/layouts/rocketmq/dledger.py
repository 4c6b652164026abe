"""Entries of a DLedger log, which a RocketMQ broker in DLedger mode writes in place of a plain CommitLog.

Each entry is a header and a CommitLog record. Segments, offsets and records are those of a CommitLog; the physical
offset in a record is that of the record itself, 48 bytes after its entry. Big-endian:

    offset  size  field
         0     4  magic         1
         4     4  size          bytes of the entry, this header included
         8     8  entry_index   number of the entry in the log, from 0
        16     8  term          term of the leader that appended it
        24     8  position      physical offset of the entry
        32     4  channel       0
        36     4  chain_crc     0
        40     4  body_crc      0
        44     4  body_size     bytes of the record

If the next entry does not fit into a segment, a blank follows: `magic` = FFFFFFFF, then the bytes left in the segment.
Source: DLedgerEntryCoder and DLedgerMmapFileStore of DLedger 0.3.1.2 (RocketMQ 5.5.0).
"""

from __future__ import annotations

from commitlake.schemas.layouts.base import Field, Layout

ENTRY_MAGIC, BLANK_MAGIC = 1, -1
ENTRY_HEADER = Layout(
    Field("magic", "i", "1"),
    Field("size", "i", "bytes of the entry"),
    Field("entry_index", "q", "number of the entry in the log"),
    Field("term", "q", "term of the leader that appended it"),
    Field("position", "q", "physical offset of the entry"),
    Field("channel", "i", "0"),
    Field("chain_crc", "i", "0"),
    Field("body_crc", "i", "0"),
    Field("body_size", "i", "bytes of the record"),
)
"""Followed by the record."""
INDEX_ENTRY = Layout(
    Field("magic", "i", "1"),
    Field("position", "q", "physical offset of the entry"),
    Field("size", "i", "bytes of the entry"),
    Field("entry_index", "q", "number of the entry in the log"),
    Field("term", "q", "term of the leader that appended it"),
)
"""Element of the files in `dledger-<self>/index`, one for each entry of the log, in order."""

assert ENTRY_HEADER.size == 48
assert ENTRY_HEADER.offset_of("position") == 24
assert INDEX_ENTRY.size == 32
