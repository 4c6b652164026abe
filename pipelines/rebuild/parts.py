"""A part: what one range of the log gives to the queues and to the index, in one file.

    blocks, one behind another | table, JSON | 8 bytes: length of the table | 4 bytes: its CRC-32

A block holds the entries of one queue, as they go into its files, and behind them their queue offsets where these do
not simply count on; or the keys of some records, as four columns. Each has its CRC in the table. A part is written
beside its place and renamed, and nothing is synced: what a crash of the machine leaves of it, the CRCs tell.
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

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.kernel.crc import crc32
from commitlake.pipelines.rebuild.errors import RebuildError
from commitlake.schemas.layouts.rocketmq.batch_evidence import BatchEvidence
from commitlake.schemas.store_files import create_file, open_file

_FOOT = struct.Struct("<QI")
_MOST_TABLE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A queue.

    Attributes:
        topic: its topic, or the light queue's name.
        queue_id: its number there.
        is_batch: it is a BatchConsumeQueue.
    """

    topic: str
    queue_id: int
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class QueueBlock:
    """Where the entries of a queue are.

    Attributes:
        position: in the part, bytes.
        size: bytes.
        count: how many entries.
        first: queue offset of the first, where they count on from there; -1 where the queue offsets lie behind them.
        crc: CRC-32 of the block.
    """

    position: int
    size: int
    count: int
    first: int
    crc: int


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Where the keys of some records are.

    Attributes:
        position: in the part, bytes.
        size: bytes.
        records: how many records.
        keys: how many keys they have together.
        crc: CRC-32 of the block.
    """

    position: int
    size: int
    records: int
    keys: int
    crc: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of some records.

    Attributes:
        offsets: int64, physical offsets of records that have keys.
        times: int64, their store times, ms.
        ends: int64, where each one's hashes end.
        hashes: int32, what an index stores of each key.
    """

    offsets: Array
    times: Array
    ends: Array
    hashes: Array


@dataclass(frozen=True, slots=True)
class Totals:
    """What a part, or several, came to.

    Attributes:
        records: of the log.
        keys: for the index.
        refused: records whose topic or queue no folder can be named after.
        bad_ranges: stretches of the log that hold no intact record.
        bad_bytes: how long they are together.
        last_offset: physical offset of the last record, -1 for none.
        last_keyed: of the last record that has keys, -1 for none.
        last_time: store time of the last record, ms.
        queued_offset: physical offset of the last record that is in a queue, -1 for none.
        queued_time: its store time, ms.
        last_end: physical offset behind the last record, -1 for none.
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

    def joined(self, later: Totals) -> Totals:
        """With those of a later range."""
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
class Table:
    """What is in a part.

    Attributes:
        totals: of its range.
        queues: where each queue's entries are.
        keys: where the keys are, in the order of the log.
        evidence: what the log shows of topics whose records have the flag of inner batches, although they were not
            taken for topics of BatchConsumeQueues.
    """

    totals: Totals
    queues: dict[Queue, QueueBlock]
    keys: tuple[KeyBlock, ...]
    evidence: dict[str, BatchEvidence] = field(default_factory=dict)

    def counts(self) -> dict[Queue, int]:
        """How many entries each queue has here."""
        return {queue: block.count for queue, block in self.queues.items()}


class PartWriter:
    """Writes one part; `finish` gives it its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_suffix(".tmp")
        self._file: BinaryIO = os.fdopen(create_file(self._beside), "wb")
        self._position = 0

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; what is not finished is gone."""
        self._file.close()
        self._beside.unlink(missing_ok=True)

    def _put(self, columns: list[Array]) -> tuple[int, int, int]:
        block = np.concatenate([np.ascontiguousarray(column).view(np.uint8) for column in columns])
        begin = self._position
        self._file.write(block.data)
        self._position += len(block)
        return begin, len(block), _crc_of(block)

    def put_queue(self, entries: Array, numbers: Array, *, plain: bool) -> QueueBlock:
        """Write the entries of one queue.

        Args:
            entries: uint8, as they go into its files.
            numbers: int64, their queue offsets.
            plain: the numbers count on.
        """
        columns = [entries] if plain else [entries, numbers]
        position, size, crc = self._put(columns)
        return QueueBlock(position, size, len(numbers), int(numbers[0]) if plain else -1, crc)

    def put_keys(self, keys: Keys) -> KeyBlock:
        """Write the keys of some records."""
        position, size, crc = self._put([keys.offsets, keys.times, keys.ends, keys.hashes])
        return KeyBlock(position, size, len(keys.offsets), len(keys.hashes), crc)

    def finish(self, table: Table) -> None:
        """Write the table; the part is there from now on."""
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
        self._beside.replace(self._path)


def read_table(path: Path) -> Table | None:
    """The table of a part, or None where there is no such part, or not all of it."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            file.seek(-_FOOT.size, os.SEEK_END)
            length, crc = _FOOT.unpack(file.read(_FOOT.size))
            if length > min(_MOST_TABLE_BYTES, os.fstat(file.fileno()).st_size - _FOOT.size):
                return None
            file.seek(-_FOOT.size - length, os.SEEK_END)
            data = file.read(length)
    except OSError:
        return None
    return _parse_table(json.loads(data)) if zlib.crc32(data) == crc else None


def _parse_table(document: dict[str, Any]) -> Table:
    return Table(
        Totals(**document["totals"]),
        {
            Queue(topic, queue_id, is_batch): QueueBlock(*block)
            for topic, queue_id, is_batch, *block in document["queues"]
        },
        tuple(KeyBlock(*block) for block in document["keys"]),
        {topic: BatchEvidence(*numbers) for topic, numbers in document["evidence"].items()},
    )


class PartReader:
    """Reads the blocks of one part."""

    def __init__(self, path: Path) -> None:
        """Read its table.

        Raises:
            RebuildError: if it is not whole.
        """
        table = read_table(path)
        if table is None:
            raise _damaged(path)
        self.table = table
        self._path = path

    def _block(self, position: int, size: int, crc: int) -> Array:
        block = np.fromfile(self._path, np.uint8, size, offset=position)
        if len(block) != size or _crc_of(block) != crc:
            raise _damaged(self._path)
        return block

    def queue(self, queue: Queue, entry_size: int) -> tuple[Array, Array | None]:
        """The entries of a queue, a row of bytes each, and their queue offsets where these do not count on."""
        block = self.table.queues[queue]
        data = self._block(block.position, block.size, block.crc)
        end = block.count * entry_size
        entries = np.frombuffer(data, np.uint8, end).reshape(block.count, entry_size)
        return entries, None if block.first >= 0 else np.frombuffer(data, np.int64, block.count, end)

    def keys(self, first: int, end: int) -> Iterator[tuple[Keys, int, int]]:
        """The blocks that have the part's keys from `first` to before `end`, and which of a block's these are."""
        position = 0
        for block in self.table.keys:
            begin, stop = max(0, first - position), min(block.keys, end - position)
            position += block.keys
            if begin < stop:
                data = self._block(block.position, block.size, block.crc)
                count = block.records
                longs = np.frombuffer(data, np.int64, 3 * count).reshape(3, count)
                yield (
                    Keys(longs[0], longs[1], longs[2], np.frombuffer(data, np.int32, block.keys, longs.nbytes)),
                    begin,
                    stop,
                )


def _crc_of(block: Array) -> int:
    return int(crc32(block, 0, len(block)))


def _damaged(path: Path) -> RebuildError:
    return RebuildError(f"{path}: expected a whole part, found it cut or changed; delete it, and run again")
