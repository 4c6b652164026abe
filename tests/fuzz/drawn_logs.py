"""Code shared by logs of hostile records: numbers drawn for all records at once, and segments with these records."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

_MAX_POOL = 20_000
"""Distinct texts of one kind in one log; a larger log has each of them several times."""

Ints = npt.NDArray[np.int64]
Columns = Sequence[Sequence[bytes]]
"""Parts of all records: for each part, its bytes in each of the records."""


class DrawnLog(ABC):
    """A log of hostile records; two thirds of them have nothing strange in their fixed fields."""

    def __init__(self, chance: random.Random, count: int, segment_bytes: int) -> None:
        """Prepare the draw.

        Args:
            chance: source of randomness.
            count: number of records.
            segment_bytes: size of a segment.
        """
        self._chance = chance
        self._random = np.random.default_rng(chance.getrandbits(64))
        self._count = count
        self._segment_bytes = segment_bytes
        self._is_strange = self._is(0.3)

    @abstractmethod
    def _draw(self) -> tuple[npt.NDArray[Any], str, Columns]:
        """Return heads with `total_size`, the name of their field for a record's place, and the parts after them."""

    @abstractmethod
    def _end_of_segment(self, bytes_left: int) -> bytes:
        """Return the bytes at the end of a segment where the next record does not fit; as few as possible."""

    def segments(self) -> list[bytes]:
        """Return the segments' bytes, each of `segment_bytes`."""
        head, place, columns = self._draw()
        sizes = head["total_size"].astype(np.int64)
        reserve = len(self._end_of_segment(self._segment_bytes))
        ends = np.cumsum(sizes)
        out: list[bytes] = []
        first = 0
        while first < self._count:
            before = ends[first - 1] if first else 0
            stop = int(np.searchsorted(ends, before + self._segment_bytes - reserve, side="right"))
            head[place][first:stop] = len(out) * self._segment_bytes + ends[first:stop] - sizes[first:stop] - before
            parts = [column[first:stop] for column in columns]
            data = b"".join(chain.from_iterable(zip(self._heads(head[first:stop], first), *parts, strict=True)))
            if stop < self._count:
                data += self._end_of_segment(self._segment_bytes - len(data))
            out.append(data.ljust(self._segment_bytes, b"\0"))
            first = stop
        return out

    def _heads(self, head: npt.NDArray[Any], first: int) -> list[bytes]:  # noqa: ARG002 (others may change some)
        """Return the bytes of the heads of the records from `first` on."""
        return rows(head)

    def _is(self, share: float) -> npt.NDArray[np.bool_]:
        """Return a mask that chooses a random share of the records."""
        return self._random.random(self._count) < share

    def _pick(self, values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)[self._random.integers(0, len(values), self._count)]

    def _vary(self, values: Sequence[int], usual: Ints | int, share: float = 0.2) -> Ints:
        """Return the usual values, and one of `values` for a share of the strange records."""
        return np.where(self._is_strange & self._is(share), self._pick(values), usual)

    def _pool_size(self) -> int:
        return min(self._count, _MAX_POOL)

    def _numbers_of_queues(self, queues: Ints, is_counted: npt.NDArray[np.bool_]) -> Ints:
        """Return the number of each counted record among those of its queue; 0 for the others."""
        counted = np.flatnonzero(is_counted)
        order = np.argsort(queues[counted], kind="stable")
        ordered = queues[counted][order]
        numbers = np.zeros(self._count, np.int64)
        numbers[counted[order]] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        return numbers


def lengths(texts: Sequence[bytes]) -> Ints:
    """Return the length of each text."""
    return np.fromiter(map(len, texts), np.int64, len(texts))


def rows(table: npt.NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row."""
    found: list[bytes] = table.view(f"V{table.dtype.itemsize}").tolist()
    return found


def chosen(values: Sequence[bytes], numbers: Ints) -> list[bytes]:
    """Return the values with these numbers."""
    return list(map(values.__getitem__, numbers.tolist()))
