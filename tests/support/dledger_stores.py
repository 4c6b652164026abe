"""Stores with a DLedger log, made of the records of a plain one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from commitlake.schemas.layouts.rocketmq import dledger
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD
from commitlake.schemas.layouts.segment_names import segment_name

_AT_OFFSET = HEAD.offset_of("physical_offset")
FOLDER = "dledger-n0"


def append_dledger_log(root: Path, records: Sequence[bytes], segment_bytes: int, start: int = 0) -> list[int]:
    """Write records as the entries of a DLedger log into a store, all of them committed.

    Args:
        root: the store's folder.
        records: CommitLog records; their physical offsets are changed.
        segment_bytes: size of a segment.
        start: physical offset of the first segment.

    Returns:
        The physical offsets of the records.
    """
    segments, index, offsets = [bytearray()], b"", []
    for number, record in enumerate(records):
        size = dledger.ENTRY_HEADER.size + len(record)
        used = len(segments[-1])
        if used + size + BLANK.size > segment_bytes:
            segments[-1] += BLANK.pack(dledger.BLANK_MAGIC, segment_bytes - used)
            segments.append(bytearray())
        position = start + segment_bytes * (len(segments) - 1) + len(segments[-1])
        offsets.append(position + dledger.ENTRY_HEADER.size)
        segments[-1] += dledger.ENTRY_HEADER.pack(dledger.ENTRY_MAGIC, size, number, 0, position, 0, 0, 0, len(record))
        segments[-1] += record[:_AT_OFFSET] + offsets[-1].to_bytes(8, "big") + record[_AT_OFFSET + 8 :]
        index += dledger.INDEX_ENTRY.pack(dledger.ENTRY_MAGIC, position, size, number, 0)
    for folder in ("data", "index"):
        (root / FOLDER / folder).mkdir(parents=True)
    for number, segment in enumerate(segments):
        name = segment_name(start + number * segment_bytes)
        (root / FOLDER / "data" / name).write_bytes(segment.ljust(segment_bytes, b"\0"))
    (root / FOLDER / "index" / segment_name(0)).write_bytes(index.ljust(1 << 16, b"\0"))
    commit(root, len(records) - 1)
    return offsets


def commit(root: Path, entry_index: int) -> None:
    """Write a checkpoint according to which the entries up to one are committed."""
    (root / FOLDER / "checkpoint").write_text(f"committedIndex={entry_index}\nendIndex={entry_index}\n")


def take_indexes_away(root: Path) -> None:
    """Delete the queues, the indexes and the checkpoint, which know other offsets."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
