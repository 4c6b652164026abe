"""Distinct values of a repetitive column: numbered by the kernel, and each converted to text once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from commitlake.connectors.formats.engine.arrow import Dictionary
from commitlake.connectors.formats.engine.kernel.buffers import is_crowded, make_interner
from commitlake.connectors.formats.engine.kernel.memory import PADDING
from commitlake.connectors.formats.engine.kernel.strings import DISTINCT, intern_span
from commitlake.schemas.layouts.rocketmq.hosts import V6_SIZE, parse_host

_MAX_KEPT = 1024  # a data file stores all values of a dictionary, also those that its rows do not have
ToText = Callable[[bytes], str]


def utf8_text(value: bytes) -> str:
    """Decode bytes as UTF-8; invalid bytes become U+FFFD."""
    return value.decode("utf-8", "replace")


def host_text(value: bytes) -> str:
    """Return a stored host as ip:port."""
    return str(parse_host(value, 0, is_v6=len(value) == V6_SIZE))


class Distinct:
    """Values numbered in order of appearance, over all batches of a split, or of several."""

    def __init__(self, seed: np.uint64, to_text: ToText, known: tuple[str, ...] = ()) -> None:
        """Start with the given values, numbered from 0."""
        self._seed = seed
        self._to_text = to_text
        self._known = known
        self.interner = make_interner()
        self._values: list[bytes] = []
        self._texts: list[str] = []
        self._dictionary = Dictionary([])
        for value in known:
            data = np.frombuffer(value.encode() + bytes(PADDING), np.uint8)
            intern_span(data, 0, len(data) - PADDING, seed, -1, *self.interner)

    def renewed(self) -> Distinct:
        """Return this object, or an empty one if it is too large for the next batch; earlier batches keep theirs."""
        return self._emptied() if is_crowded(self.interner) else self

    def for_next_split(self) -> Distinct:
        """Return this object, or an empty one if it has many values, which the rows of the next split may not have."""
        return self._emptied() if self.interner.counts[DISTINCT] > _MAX_KEPT else self

    def _emptied(self) -> Distinct:
        return Distinct(self._seed, self._to_text, self._known)

    @property
    def values(self) -> list[bytes]:
        """Values in stored form."""
        known, count = len(self._values), int(self.interner.counts[DISTINCT])
        if known < count:
            starts = self.interner.starts[known : count + 1].tolist()
            texts = self.interner.texts[: starts[-1]].tobytes()
            fresh = [texts[begin:end] for begin, end in pairwise(starts)]
            self._values += fresh
            self._texts += [self._to_text(value) for value in fresh]
        return self._values

    @property
    def texts(self) -> list[str]:
        """Values as text."""
        return self._texts if self.values else []

    @property
    def replaced(self) -> list[int]:
        """Numbers of the values whose text differs because they are not UTF-8."""
        return [
            code for code, text in enumerate(self.texts) if "\ufffd" in text and text.encode() != self._values[code]
        ]

    @property
    def dictionary(self) -> Dictionary:
        """Values as text, for Arrow."""
        if len(self._dictionary.array) < len(self.values):
            self._dictionary = Dictionary(self._texts)
        return self._dictionary


class DistinctValues(NamedTuple):
    """Repeating strings of a split, in the order of the kernel's interners.

    Attributes:
        names: property names.
        topics: topics, including those that a property names as a message's original topic.
        tags: tags.
        producer_groups: producer groups.
        born_hosts: producers.
        store_hosts: brokers.
    """

    names: Distinct
    topics: Distinct
    tags: Distinct
    producer_groups: Distinct
    born_hosts: Distinct
    store_hosts: Distinct

    def renewed(self) -> DistinctValues:
        """Return these objects, with an empty one for each that is too large for the next batch."""
        return DistinctValues(*(values.renewed() for values in self))

    def for_next_split(self) -> DistinctValues:
        """Return these objects, with an empty one for each that has many values."""
        return DistinctValues(*(values.for_next_split() for values in self))
