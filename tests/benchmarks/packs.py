"""Compression of bodies alone: all bodies of a store by zstd, in frames, by one process per core.

Only compression is timed, not the access to the bodies. The processes run in parallel, and the slowest one counts.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from commitlake.connectors.reading.splits import Split
from tests.benchmarks.reading import find_splits, read_bodies
from tests.benchmarks.runs import Run

PROCESSES = 2
FRAME_BYTES = 256 << 10
LEVEL = 1


@dataclass(frozen=True, slots=True)
class Compressed:
    """Result of one process: seconds of compression, bytes of bodies before and after."""

    seconds: float
    before: int
    after: int


class Compression:
    """The processes that compress a store's bodies; they end with their pool."""

    def __init__(self, pool: ProcessPoolExecutor, store: Path) -> None:
        splits = find_splits(store)
        self._pool = pool
        self._shares = [splits[number::PROCESSES] for number in range(PROCESSES)]
        self._bytes = sum(split.size for split in splits)
        self.ratio = 0.0

    def run(self) -> Run:
        """Compress all bodies once."""
        done = list(self._pool.map(compress, self._shares))
        self.ratio = sum(part.before for part in done) / sum(part.after for part in done)
        return Run(max(part.seconds for part in done), self._bytes)


def compression_pool() -> ProcessPoolExecutor:
    """Return a pool of processes that share nothing with this one, which has Spark's connections and threads."""
    return ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))


def compress(splits: list[Split]) -> Compressed:
    """Compress the bodies of splits, frame by frame."""
    codec = pa.Codec("zstd", LEVEL)
    seconds, before, after = 0.0, 0, 0
    for split in splits:
        for bodies in read_bodies(split):
            started = time.perf_counter()
            for start in range(0, len(bodies), FRAME_BYTES):
                frame = bodies[start : start + FRAME_BYTES]
                after += len(codec.compress(pa.py_buffer(frame)))
                before += len(frame)
            seconds += time.perf_counter() - started
    return Compressed(seconds, before, after)
