"""Divides profiles into partitions by a hash of broker and topic: tasks write them, the driver reads them in groups.

A file has Arrow's IPC file format: for each partition, in order, record batches of `PROFILE`, or none. All windows of a
topic are in one partition, in the files of all tasks, and a partition is a contiguous range of bytes. A
`PartitionIndex`, which is sent to the driver, has these ranges, so that a part of a file takes one read.

The driver reads `PartitionGroup`s: several partitions together, or a share of the topics of one partition that is too
large. Memory for a group is bounded by `GROUP_ROWS`, except that the windows of one topic are never separated.

A `groupBy` cannot replace this, because neither Arrow's nor Spark's joins the runs of queue offsets. For 800,000
windows of 8 tasks, these partitions and their merge took 4.1 s of one core and 380 MiB, on a busy machine 11 s. Arrow's
`group_by` of the other columns took 2.5 s and 850 MiB, which grow with the run; Spark's of 14 of the 40 columns took 83
s in a new session and 10 s in a warm one on the same machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality.profile_columns import SCHEMA, ProfileError
from commitlake.schemas.formatted_counts import format_count

PARTITIONS = 64
GROUP_ROWS = 250_000
"""Largest number of windows of all tasks' profiles that are merged at once; each takes up two kilobytes."""
_BATCH_ROWS = 1 << 16
_MAGIC_BYTES = 8  # "ARROW1" and two zeros
_INDEX = np.dtype([("rows", "<u4"), ("size", "<u4"), ("crc", "<u4")])
_BEGIN_BYTES = 4
_TOPIC = ("broker", "topic")


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    """Position, size and row count of each partition in a file with a serialized profile.

    Attributes:
        begin: position of the first partition.
        parts: for each partition, its number of rows, its size, and the CRC-32 of its bytes.
    """

    begin: int
    parts: Array

    @property
    def row_counts(self) -> Array:
        """Number of rows by partition."""
        found: Array = self.parts["rows"].astype(np.int64)
        return found

    def byte_range(self, group: PartitionGroup) -> tuple[int, int]:
        """Return the byte offset and the length of a group's partitions in the file."""
        sizes = self.parts["size"].astype(np.int64)
        return self.begin + int(sizes[: group.first].sum()), int(sizes[group.first : group.end].sum())

    def to_bytes(self) -> bytes:
        """Serialize the index, for a column of a task's manifest."""
        return self.begin.to_bytes(_BEGIN_BYTES, "little") + self.parts.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionIndex:
        """Parse an index from a column of a task's manifest.

        Raises:
            ProfileError: if the length is wrong.
        """
        expected = _BEGIN_BYTES + PARTITIONS * _INDEX.itemsize
        if len(data) != expected:
            raise ProfileError(
                f"expected an index of {expected} bytes for the partitions of a profile, found {len(data)} bytes"
            )
        return cls(int.from_bytes(data[:_BEGIN_BYTES], "little"), np.frombuffer(data, _INDEX, offset=_BEGIN_BYTES))


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """A group of consecutive partitions of a profile, or a share of the topics of one large partition."""

    first: int = 0
    end: int = PARTITIONS
    share: int = 0
    shares: int = 1


def group_partitions(row_counts: Sequence[int] | Array, max_rows: int = GROUP_ROWS) -> list[PartitionGroup]:
    """Divide all partitions, in order, into groups of limited size; returns at least one group.

    A larger partition is divided by hashes of topics into shares of about that size.

    Args:
        row_counts: number of rows of each partition, in all files.
        max_rows: largest number of rows of a group.
    """
    groups: list[PartitionGroup] = []
    first = held = 0
    for partition, count in enumerate(map(int, row_counts)):
        if partition > first and held + count > max_rows:
            groups += _divide_partition(first, partition, held, max_rows)
            first, held = partition, 0
        held += count
    return groups + _divide_partition(first, len(row_counts), held, max_rows)


def _divide_partition(first: int, end: int, row_count: int, max_rows: int) -> list[PartitionGroup]:
    # Empty partitions after a large one are in its group.
    shares = max(1, -(-row_count // max_rows))
    return [PartitionGroup(first, end, share, shares) for share in range(shares)]


def select_group_rows(profile: pa.Table, group: PartitionGroup) -> pa.Table:
    """Return the rows of a profile that belong to a group."""
    hashes = _topic_hashes(profile)
    partitions = hashes % PARTITIONS
    chosen = (partitions >= group.first) & (partitions < group.end)
    if group.shares > 1:
        # Other digits of the hash than those that have chosen the partition, which its topics have in common.
        chosen &= hashes // PARTITIONS % group.shares == group.share
    return profile if chosen.all() else profile.filter(pa.array(chosen))


def partition_row_counts(profile: pa.Table) -> Array:
    """Return the number of rows by partition."""
    return np.bincount(_topic_hashes(profile) % PARTITIONS, minlength=PARTITIONS)


def _topic_hashes(profile: pa.Table) -> Array:
    """Return a hash of each row's broker and topic that is the same in every process."""
    (brokers, broker_names), (topics, topic_names) = (_string_codes(profile.column(name)) for name in _TOPIC)
    found, places = np.unique(brokers * len(topic_names) + topics, return_inverse=True)
    hashes = [
        zlib.crc32(
            _bytes_to_hash(topic_names[code % len(topic_names)]),
            zlib.crc32(_bytes_to_hash(broker_names[code // len(topic_names)])),
        )
        for code in found.tolist()
    ]
    return np.array(hashes, np.int64)[places]


def _string_codes(column: pa.ChunkedArray) -> tuple[Array, list[str | None]]:
    """Return a column's strings as dictionary codes, and the dictionary, whose last item is null."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), None]
    return encoded.indices.cast(pa.int64()).fill_null(len(names) - 1).to_numpy(), names


def _bytes_to_hash(name: str | None) -> bytes:
    return b"\xff" if name is None else name.encode() + b"\xfe"  # bytes that are in no UTF-8 text


def serialize_partitions(profile: pa.Table) -> tuple[pa.Buffer, PartitionIndex]:
    """Serialize a profile partition by partition, and return the bytes and an index of the partitions."""
    partitions = _topic_hashes(profile) % PARTITIONS
    counts = np.bincount(partitions, minlength=PARTITIONS)
    ordered = profile.select(SCHEMA.names).take(pa.array(np.argsort(partitions, kind="stable"))).combine_chunks()
    sink = pa.BufferOutputStream()
    starts, ends = np.cumsum(counts) - counts, []
    with pa.ipc.new_file(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            writer.write_table(ordered.slice(start, count), max_chunksize=_BATCH_ROWS)
            ends.append(sink.tell())
    data = sink.getvalue()
    begin = _find_schema_end(data)
    bounds = np.maximum([begin, *ends], begin).tolist()  # the schema is written with the first batch
    parts = np.zeros(PARTITIONS, _INDEX)
    parts["rows"], parts["size"] = counts, np.diff(bounds)
    parts["crc"] = [zlib.crc32(data[first:end]) for first, end in pairwise(bounds)]
    return data, PartitionIndex(begin, parts)


def _find_schema_end(data: pa.Buffer) -> int:
    reader = pa.BufferReader(data[_MAGIC_BYTES:])
    pa.ipc.read_message(reader)
    return _MAGIC_BYTES + int(reader.tell())


def parse_partitions(data: bytes, index: PartitionIndex, group: PartitionGroup) -> pa.Table:
    """Parse the rows of a partition group from the bytes of its part of the file.

    Args:
        data: bytes of the file in the range of `index.byte_range(group)`.
        index: index of the file.

    Raises:
        ProfileError: if the bytes are not those that were written.
    """
    offset, length = index.byte_range(group)
    if len(data) != length:
        raise ProfileError(
            f"expected {length} bytes of a profile at position {offset} of its file, found {len(data)}: the file is "
            "truncated"
        )
    begin, view = 0, memoryview(data)
    for number, part in enumerate(index.parts[group.first : group.end].tolist(), group.first):
        _, size, crc = part
        found = zlib.crc32(view[begin : begin + size])
        if found != crc:
            raise ProfileError(
                f"partition {number} of a profile, {size} bytes at position {offset + begin}: expected the CRC-32 "
                f"{crc:#010x}, found {found:#010x}: its file is damaged"
            )
        begin += size
    try:
        # The bytes are a part of a file, without the schema at its begin, so a file reader cannot read them.
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
        batches = [pa.ipc.read_record_batch(message, SCHEMA) for message in messages]
    except (pa.ArrowInvalid, OSError) as error:
        raise ProfileError(
            f"expected record batches of a profile, found {length} bytes of other data: {error}"
        ) from error
    table = pa.Table.from_batches(batches, SCHEMA)
    if table.num_rows != (expected := int(index.row_counts[group.first : group.end].sum())):
        raise ProfileError(f"expected {format_count(expected, 'row')} of a profile, found {table.num_rows}")
    return select_group_rows(table, group) if group.shares > 1 else table
