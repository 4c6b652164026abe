"""Part files: the queue entries and keys of one range of the log.

    blocks | table, JSON | 8 bytes: length of the table | 4 bytes: its CRC-32

A block holds the entries of one queue, as they are written to its files, followed by their queue offsets where these
are not consecutive; or the keys of some records, as four columns. The table has a CRC of each block. A part is written
under another name and renamed. Nothing is synced: after a crash of the machine, the CRCs show what is missing.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.crc import crc32
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BatchEvidence
from commitlake.schemas.safe_store_files import create_file, open_file

_FOOT = struct.Struct("<QI")
_MAX_TABLE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """Identity of a queue: topic, queue id, and whether it is a BatchConsumeQueue.

    Attributes:
        topic: the topic, or the light queue's name.
        queue_id: the queue's number in the topic.
        is_batch: True for a BatchConsumeQueue.
    """

    topic: str
    queue_id: int
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class QueueBlock:
    """Position and size of the block of a part file that has the entries of one queue.

    Attributes:
        position: position in the part, bytes.
        size: size of the block, bytes.
        count: number of entries.
        first: queue offset of the first entry if they are consecutive; -1 if queue offsets follow the entries.
        crc: CRC-32 of the block.
    """

    position: int
    size: int
    count: int
    first: int
    crc: int


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Position and size of a block of a part file that has keys of records.

    Attributes:
        position: position in the part, bytes.
        size: size of the block, bytes.
        records: number of records.
        keys: number of their keys.
        crc: CRC-32 of the block.
    """

    position: int
    size: int
    records: int
    keys: int
    crc: int


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Hashes of the keys of records, with the records' physical offsets and store times.

    Attributes:
        offsets: int64, physical offsets of records that have keys.
        times: int64, their store times, ms.
        ends: int64, the end of each record's hashes in `hashes`.
        hashes: int32, the hash of each key as an index stores it.
    """

    offsets: Array
    times: Array
    ends: Array
    hashes: Array


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of records and keys in one or more log ranges, and the positions of the last ones.

    Attributes:
        records: number of records.
        keys: number of keys for the index.
        refused: number of records whose topic or queue cannot be the name of a folder.
        bad_ranges: number of ranges without an intact record.
        bad_bytes: total size of these ranges, bytes.
        last_offset: physical offset of the last record, -1 for none.
        last_keyed: physical offset of the last record that has keys, -1 for none.
        last_time: store time of the last record, ms.
        queued_offset: physical offset of the last record that is in a queue, -1 for none.
        queued_time: its store time, ms.
        last_end: physical offset after the last record, -1 for none.
    """

    records: int = 0
    keys: int = 0
    refused: int = 0
    bad_ranges: int = 0
    bad_bytes: int = 0
    last_offset: int = -1
    last_keyed: int = -1
    last_time: int = 0
    queued_offset: int = -1
    queued_time: int = 0
    last_end: int = -1

    def join_with_later(self, later: Totals) -> Totals:
        """Return the totals of this range of the log and a later one together."""
        last = later if later.last_offset >= 0 else self
        queued = later if later.queued_offset >= 0 else self
        return Totals(
            self.records + later.records,
            self.keys + later.keys,
            self.refused + later.refused,
            self.bad_ranges + later.bad_ranges,
            self.bad_bytes + later.bad_bytes,
            last.last_offset,
            max(self.last_keyed, later.last_keyed),
            last.last_time,
            queued.queued_offset,
            queued.queued_time,
            last.last_end,
        )


@dataclass(frozen=True, slots=True)
class PartTable:
    """Table of contents of a part file: the position of each queue's entries and of the keys.

    Attributes:
        totals: totals of its range.
        queues: the block of each queue.
        keys: the blocks of keys, in log order.
        evidence: what the log shows of topics whose records have the flag of inner batches, although the topics were
            not known to have BatchConsumeQueues.
    """

    totals: Totals
    queues: dict[Queue, QueueBlock]
    keys: tuple[KeyBlock, ...]
    evidence: dict[str, BatchEvidence] = field(default_factory=dict)

    def entry_counts_by_queue(self) -> dict[Queue, int]:
        """Return the number of queue entries by queue."""
        return {queue: block.count for queue, block in self.queues.items()}


class PartWriter:
    """Writer of one part file; `finish` gives the file its final name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_suffix(".tmp")
        self._file: BinaryIO = os.fdopen(create_file(self._beside), "wb")
        self._position = 0

    def __enter__(self) -> Self:
        """Return this writer; the part file is removed at the end of the block unless `finish` was called."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the part file, and remove it if it is not finished."""
        self._file.close()
        self._beside.unlink(missing_ok=True)

    def _write_block(self, columns: list[Array]) -> tuple[int, int, int]:
        block = np.concatenate([np.ascontiguousarray(column).view(np.uint8) for column in columns])
        begin = self._position
        self._file.write(block.data)
        self._position += len(block)
        return begin, len(block), _block_crc(block)

    def write_queue_entries(self, entries: Array, queue_offsets: Array, *, are_consecutive: bool) -> QueueBlock:
        """Write the entries of one queue as a block of the part file.

        Args:
            entries: uint8, the bytes of the entries as they are written to queue files.
            queue_offsets: int64, their queue offsets.
            are_consecutive: True if the queue offsets are consecutive.
        """
        columns = [entries] if are_consecutive else [entries, queue_offsets]
        position, size, crc = self._write_block(columns)
        return QueueBlock(position, size, len(queue_offsets), int(queue_offsets[0]) if are_consecutive else -1, crc)

    def write_record_keys(self, keys: RecordKeys) -> KeyBlock:
        """Write the keys of records as a block of the part file."""
        position, size, crc = self._write_block([keys.offsets, keys.times, keys.ends, keys.hashes])
        return KeyBlock(position, size, len(keys.offsets), len(keys.hashes), crc)

    def finish(self, table: PartTable) -> None:
        """Write the table of contents, and rename the part file to its final name."""
        data = json.dumps(
            {
                "totals": asdict(table.totals),
                "queues": [[*asdict(queue).values(), *asdict(block).values()] for queue, block in table.queues.items()],
                "keys": [list(asdict(block).values()) for block in table.keys],
                "evidence": {topic: list(asdict(evidence).values()) for topic, evidence in table.evidence.items()},
            }
        ).encode()
        self._file.write(data + _FOOT.pack(len(data), zlib.crc32(data)))
        self._file.flush()
        # Only a complete part has its final name, so that a run that continues can trust it.
        self._beside.replace(self._path)


def read_part_table(path: Path) -> PartTable | None:
    """Return the table of contents of a part file; None if the file does not exist or is not complete."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            file.seek(-_FOOT.size, os.SEEK_END)
            length, crc = _FOOT.unpack(file.read(_FOOT.size))
            # The length may be damaged, too, and must not lead to reading gigabytes.
            if length > min(_MAX_TABLE_BYTES, os.fstat(file.fileno()).st_size - _FOOT.size):
                return None
            file.seek(-_FOOT.size - length, os.SEEK_END)
            data = file.read(length)
    except OSError:
        return None
    return _parse_table(json.loads(data)) if zlib.crc32(data) == crc else None


def _parse_table(document: dict[str, Any]) -> PartTable:
    return PartTable(
        Totals(**document["totals"]),
        {
            Queue(topic, queue_id, is_batch): QueueBlock(*block)
            for topic, queue_id, is_batch, *block in document["queues"]
        },
        tuple(KeyBlock(*block) for block in document["keys"]),
        {topic: BatchEvidence(*numbers) for topic, numbers in document["evidence"].items()},
    )


class PartReader:
    """Reader of the blocks of one part file."""

    def __init__(self, path: Path) -> None:
        """Open a part file by reading its table of contents.

        Raises:
            UsageError: if the part is not complete.
        """
        table = read_part_table(path)
        if table is None:
            raise _damaged_part_error(path)
        self.table = table
        self._path = path

    def _read_block(self, position: int, size: int, crc: int) -> Array:
        block = np.fromfile(self._path, np.uint8, size, offset=position)
        if len(block) != size or _block_crc(block) != crc:
            raise _damaged_part_error(self._path)
        return block

    def read_queue_entries(self, queue: Queue, entry_size: int) -> tuple[Array, Array | None]:
        """Return the entries of a queue as rows of bytes, and their queue offsets; None if these are consecutive."""
        block = self.table.queues[queue]
        data = self._read_block(block.position, block.size, block.crc)
        end = block.count * entry_size
        entries = np.frombuffer(data, np.uint8, end).reshape(block.count, entry_size)
        return entries, None if block.first >= 0 else np.frombuffer(data, np.int64, block.count, end)

    def read_keys(self, first: int, end: int) -> Iterator[tuple[RecordKeys, int, int]]:
        """Yield the blocks with the keys from number `first` to before `end`, each with the range of keys to use."""
        position = 0
        for block in self.table.keys:
            begin, stop = max(0, first - position), min(block.keys, end - position)
            position += block.keys
            if begin < stop:
                data = self._read_block(block.position, block.size, block.crc)
                count = block.records
                longs = np.frombuffer(data, np.int64, 3 * count).reshape(3, count)
                yield (
                    RecordKeys(longs[0], longs[1], longs[2], np.frombuffer(data, np.int32, block.keys, longs.nbytes)),
                    begin,
                    stop,
                )


def _block_crc(block: Array) -> int:
    return int(crc32(block, 0, len(block)))


def _damaged_part_error(path: Path) -> UsageError:
    return UsageError(f"{path}: expected a complete part, found it truncated or changed; delete it, and run again")
