"""Mutated samples: valid bytes with a few random changes of the kinds that break parsers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_NUMBERS = tuple(
    value.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for value in {0, 1, -1, 127 % (1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1)), 16, 64}
)
_LONGEST_SPAN = 32


class Mutator:
    """Changes valid samples at random."""

    def __init__(self, chance: random.Random, samples: Sequence[bytes], words: Sequence[bytes] = ()) -> None:
        """Set the samples and the source of randomness.

        Args:
            chance: makes all choices; the same seed gives the same bytes.
            samples: valid ones.
            words: bytes that may be inserted anywhere, in addition to numbers at their limits.
        """
        self._chance = chance
        self._samples = samples
        self._words = (*_NUMBERS, *words)
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip, self._flip, self._overwrite, self._overwrite, self._insert, self._delete, self._repeat,
            self._cut, self._splice,
        )  # fmt: skip

    def next(self) -> bytes:
        """Return a sample with one to four changes."""
        data = bytearray(self._chance.choice(self._samples))
        for _ in range(self._below(4) + 1):
            self._chance.choice(self._changes)(data)
        return bytes(data)

    def _below(self, end: int) -> int:
        return int(self._chance.random() * end)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._below(len(data))] ^= 1 << self._below(8)

    def _overwrite(self, data: bytearray) -> None:
        word = self._chance.choice(self._words)
        start = self._below(len(data) + 1)
        data[start : start + len(word)] = word

    def _insert(self, data: bytearray) -> None:
        start = self._below(len(data) + 1)
        data[start:start] = self._chance.choice(self._words)

    def _delete(self, data: bytearray) -> None:
        start = self._below(len(data) + 1)
        del data[start : start + 1 + self._below(_LONGEST_SPAN)]

    def _repeat(self, data: bytearray) -> None:
        start = self._below(len(data) + 1)
        data[start:start] = data[start : start + 1 + self._below(_LONGEST_SPAN)] * (1 + self._below(3))

    def _cut(self, data: bytearray) -> None:
        del data[self._below(len(data) + 1) :]

    def _splice(self, data: bytearray) -> None:
        other = self._chance.choice(self._samples)
        start = self._below(len(other) + 1)
        at = self._below(len(data) + 1)
        data[at:] = other[start:]
