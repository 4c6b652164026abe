"""The minute with most messages of each group, from rows of `topic_minutes` as they come.

A query that groups a year by topic and minute has millions of groups: most of its time goes into these. Here each group
and minute is one number in an array, and a row is added to it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.pipelines.tps.question import MINUTE, RatesQuestion
from commitlake.schemas.times import epoch_us

MAX_CELLS = 1 << 24
"""Groups times minutes that are held at once, 8 bytes each; a longer time is done in parts."""
MAX_CODES = 1 << 22
"""Combinations of values of columns that are numbered at most."""
Key = tuple[Any, ...]
Ask = Callable[[str], Iterator[pa.RecordBatch]]
_MINUTE_US = 60_000_000


def find_peaks(ask: Ask, question: RatesQuestion, keys: Sequence[Key]) -> Mapping[Key, tuple[int, datetime.datetime]]:
    """Return the messages of each group's busiest minute, and the minute, the first of several.

    Args:
        ask: answers SQL about `topic_minutes`.
        question: what is asked, of whole minutes.
        keys: all groups that there are; `can_number` is true of them.
    """
    groups = _Groups(keys)
    found: dict[Key, tuple[int, datetime.datetime]] = {}
    length = max(1, MAX_CELLS // len(keys)) * MINUTE
    start = question.start
    while start < question.end:
        end = min(start + length, question.end)
        counts = _count(ask, question, groups, start, end)
        for key, place, most in zip(keys, counts.argmax(axis=1), counts.max(axis=1), strict=True):
            if most > found.get(key, (0, start))[0]:
                found[key] = int(most), start + int(place) * MINUTE
        start = end
    return found


def can_number(keys: Sequence[Key]) -> bool:
    """Return whether groups are few enough for `find_peaks`."""
    columns = zip(*keys, strict=True)
    return 0 < len(keys) <= MAX_CELLS and prod(len(set(values)) + 1 for values in columns) <= MAX_CODES


class _Groups:
    """Numbers groups by the values of their columns.

    Args:
        keys: all groups.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        columns = list(zip(*keys, strict=True))
        self.count = len(keys)
        self._codes = [{value: code for code, value in enumerate(dict.fromkeys(values))} for values in columns]
        self._numbers = np.full(tuple(len(codes) for codes in self._codes), -1, np.int64)
        for number, key in enumerate(keys):
            self._numbers[tuple(codes[value] for codes, value in zip(self._codes, key, strict=True))] = number

    def numbers(self, columns: Sequence[pa.Array]) -> Array | int:
        """Return the number of each row's group; -1 for one that came meanwhile."""
        if not columns:
            return 0
        places = tuple(_places(column, codes) for column, codes in zip(columns, self._codes, strict=True))
        known = np.logical_and.reduce([place >= 0 for place in places])
        numbers: Array = np.where(known, self._numbers[places], -1)
        return numbers


def _places(column: pa.Array, codes: Mapping[Any, int]) -> Array:
    encoded = column.dictionary_encode("encode")
    known = np.array([codes.get(value, -1) for value in encoded.dictionary.to_pylist()], np.int64)
    found: Array = known[encoded.indices.to_numpy()]
    return found


def _count(
    ask: Ask, question: RatesQuestion, groups: _Groups, start: datetime.datetime, end: datetime.datetime
) -> Array:
    """Return the messages of each group and minute of a part of the time."""
    minutes = (end - start) // MINUTE
    counts = np.zeros(groups.count * minutes, np.int64)
    for batch in ask(question.minute_rows(start, end)):
        numbers = groups.numbers([batch.column(number) for number in range(batch.num_columns - 2)])
        times = batch.column(batch.num_columns - 2).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        cells = numbers * minutes + (times - epoch_us(start)) // _MINUTE_US
        messages = batch.column(batch.num_columns - 1).to_numpy()
        if isinstance(numbers, np.ndarray) and numbers.min(initial=0) < 0:
            cells, messages = cells[numbers >= 0], messages[numbers >= 0]
        np.add.at(counts, cells, messages)
    return counts.reshape(groups.count, minutes)
