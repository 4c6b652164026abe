"""This project's reading of a store on one core, without Spark. No other benchmark calls the reader's internals.

`python -m tests.benchmarks.reading STORE` runs the passes of `PASSES` on demand in a separate process. It reads the
name of a pass per line of standard input, and writes a JSON object per line to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, SOURCE
from tests.benchmarks.runs import Run

BROKER = "bench"
_SPLIT_BYTES = 256 << 20
_COPY_BYTES = 64 << 20
_READ_BYTES = 4 << 20
ALL_BUT_BODY = SOURCE.drop_columns(BODY.name, CORRUPT_RECORD.name)


class Reading:
    """A store, planned and opened for passes."""

    def __init__(self, store: Path) -> None:
        self.splits = find_splits(store)
        self.bytes = sum(split.size for split in self.splits)
        self._mapped = [np.memmap(path, np.uint8, mode="r") for path in sorted({split.path for split in self.splits})]
        self._copied = np.empty(_COPY_BYTES, np.uint8)
        self._buffer = np.empty(_READ_BYTES, np.uint8)

    def copy_memory(self) -> int:
        """Copy every byte of the mapped files into a buffer, at the speed of memory; no records are parsed."""
        for split, mapped in self._mapped_ranges():
            for start in range(0, split.size, _COPY_BYTES):
                piece = mapped[start : min(start + _COPY_BYTES, split.size)]
                np.copyto(self._copied[: len(piece)], piece)
        return 0

    def read_files(self) -> int:
        """Read every byte from the page cache into a buffer of a window's size; no records are parsed."""
        for split in self.splits:
            descriptor = os.open(split.path, os.O_RDONLY)
            position, end = split.start - split.base_offset, split.end - split.base_offset
            while position < end:
                position += os.preadv(descriptor, [self._buffer.data[: end - position]], position)
            os.close(descriptor)
        return 0

    def hop(self) -> int:
        """Find the records by their sizes."""
        return sum(_walk(split, verify=False) for split in self.splits)

    def hop_and_check(self) -> int:
        """Find the records, and compare their bodies with their CRC."""
        return sum(_walk(split, verify=True) for split in self.splits)

    def all_columns(self) -> int:
        """Read all columns but the body as Arrow, and check the CRC; strings are dictionaries if they repeat."""
        return self._count(encoded=True)

    def all_columns_for_spark(self) -> int:
        """Read the same with plain strings, because Spark does not accept dictionaries."""
        return self._count(encoded=False)

    def _count(self, *, encoded: bool) -> int:
        return sum(b.num_rows for split in self.splits for b in read_batches(split, ALL_BUT_BODY, encoded=encoded))

    def _mapped_ranges(self) -> Iterator[tuple[Split, np.ndarray[Any, np.dtype[np.uint8]]]]:
        by_path = dict(zip(sorted({split.path for split in self.splits}), self._mapped, strict=True))
        for split in self.splits:
            yield split, by_path[split.path][split.start - split.base_offset : split.end - split.base_offset]


PASSES: Mapping[str, Callable[[Reading], int]] = {
    "memcpy": Reading.copy_memory,
    "page-cache read": Reading.read_files,
    "hop": Reading.hop,
    "hop and CRC": Reading.hop_and_check,
    "all columns": Reading.all_columns,
    "all columns, spelled out": Reading.all_columns_for_spark,
}
"""Passes that can be measured; each reads the whole store and returns the number of records."""


def find_splits(store: Path | str) -> list[Split]:
    """Return the splits of a whole store; a remote store is named by its URI."""
    (found,) = find_stores(str(store), BROKER, formats=all_formats())
    return plan_splits(found, take_snapshot([found]).ranges[BROKER], _SPLIT_BYTES)


def read_batches(split: Split, columns: Columns, *, encoded: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows, as a task reads them."""
    yield from read_split(split, Request(arrow_schema(columns), encoded=encoded))


def read_bodies(split: Split) -> Iterator[memoryview]:
    """Yield the stored bodies of a split, concatenated, one window at a time."""
    for batch in read_batches(split, Columns([BODY])):
        bodies = batch.column(0)
        sizes = np.frombuffer(bodies.buffers()[1], np.int32)
        yield memoryview(bodies.buffers()[2])[int(sizes[bodies.offset]) : int(sizes[bodies.offset + len(bodies)])]


def _walk(split: Split, *, verify: bool) -> int:
    with OpenSegment(split.path) as file:
        steps = walk_records(file, split, _READ_BYTES, DEFAULT_MAX_RECORD_BYTES, WalkEnd(), verifies_crc=verify)
        return sum(step.parts.shape[1] for step in steps)


def measure(reading: Reading, name: str) -> Run:
    """Run one pass."""
    started = time.perf_counter()
    messages = PASSES[name](reading)
    return Run(time.perf_counter() - started, reading.bytes, messages)


def main() -> None:
    """Run passes on request."""
    reading = Reading(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(asdict(measure(reading, line.strip()))), flush=True)


if __name__ == "__main__":
    main()
