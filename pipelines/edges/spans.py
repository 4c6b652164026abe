"""Extent of a lake for each broker, which explains why an end of a step is absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import numbers_of
from commitlake.schemas.tables.edges import LINK_DAYS, AbsentReason

LINK_US = LINK_DAYS * 86_400_000_000
"""`LINK_DAYS` in microseconds."""


@dataclass(frozen=True, slots=True)
class LakeSpan:
    """Extent of the lake's rows for one broker.

    Attributes:
        first_offset: smallest physical offset.
        end_offset: largest physical offset, plus one.
        first_us: smallest store time, microseconds since 1970.
        last_us: largest store time, microseconds since 1970.
    """

    first_offset: int
    end_offset: int
    first_us: int
    last_us: int


@dataclass(frozen=True)
class Spans:
    """Extents of all brokers; picklable.

    Attributes:
        brokers: extents by broker name.
        has_expired: True if rows of `messages` were dropped because of their age.
        pulled: brokers that the last run pulled from; their rows may come in another order than that of the log.
        linked_us: store time up to which a broker's rows were linked before an increment, by broker name; a broker
            without rows then is absent.
        complete_us: the same with the increment; a broker whose rows are all linked is absent.
    """

    brokers: Mapping[str, LakeSpan] = field(default_factory=dict)
    has_expired: bool = False
    pulled: frozenset[str] = frozenset()
    linked_us: Mapping[str, int] = field(default_factory=dict)
    complete_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def first_us(self) -> int:
        """Smallest store time of any row."""
        return min((span.first_us for span in self.brokers.values()), default=0)

    @property
    def last_us(self) -> int:
        """Largest store time of any row."""
        return max((span.last_us for span in self.brokers.values()), default=0)

    @property
    def _before(self) -> str:
        return str(AbsentReason.EXPIRED if self.has_expired else AbsentReason.BEFORE_ARCHIVE)

    def at_places(self, brokers: pa.Array, offsets: pa.Array) -> pa.Array:
        """Return the reason why there is no record at each of the given places in the brokers' logs."""
        known = numbers_of(offsets.cast(pa.int64()), null=-1)
        names = pc.dictionary_encode(brokers)
        codes = numbers_of(names.indices.cast(pa.int64()), null=-1)
        found = np.full(len(known), str(AbsentReason.NOT_YET), object)
        for code, name in enumerate(names.dictionary.to_pylist()):
            span = self.brokers.get(name)
            if span is not None:
                mine = codes == code
                found[mine & (known < span.end_offset)] = str(AbsentReason.LOST)
                found[mine & (known < span.first_offset)] = self._before
        return pa.array(found, pa.string())

    def before(self, brokers: pa.Array, times: Array, by_client: Array | None = None) -> pa.Array:
        """Return the reason why the lake has no earlier record of the same broker within `LINK_DAYS`.

        Args:
            brokers: brokers of the later records.
            times: int64, store times of the later records.
            by_client: True for records that a client sent; the earlier record may then be of another broker.
        """
        names = pc.dictionary_encode(brokers)
        codes = numbers_of(names.indices.cast(pa.int64()), null=-1)
        found = np.full(len(times), str(AbsentReason.NOT_YET), object)
        for code, name in enumerate(names.dictionary.to_pylist()):
            span = self.brokers.get(name)
            if span is not None and name not in self.pulled:
                mine = codes == code
                found[mine] = str(AbsentReason.LOST)
                found[mine & (times < span.first_us + LINK_US)] = self._before
        if by_client is not None:
            found[by_client] = str(AbsentReason.NOT_YET)
        return pa.array(found, pa.string())

    def complete_of(self, broker: str) -> int:
        """Return the store time up to which all rows of a broker are linked."""
        return self.complete_us.get(broker, self.brokers[broker].last_us)

    def are_complete(self, brokers: pa.Array, times: Array) -> Array:
        """Return whether all rows of each broker up to each time are linked; False if the broker is null."""
        names = pc.dictionary_encode(brokers)
        ends = [self.complete_of(name) if name in self.brokers else 0 for name in names.dictionary.to_pylist()]
        codes = numbers_of(names.indices.cast(pa.int64()), null=len(ends))
        found: Array = np.array([*ends, 0], np.int64)[codes] > times
        return found

    def are_newly_complete(self, times: Array) -> Array:
        """Return whether the increment links the last rows up to each time, in any broker."""
        found = np.zeros(len(times), bool)
        for broker in self.brokers:
            found |= (self.linked_us.get(broker, 0) <= times) & (times < self.complete_of(broker))
        return found

    def last_of(self, brokers: pa.Array) -> Array:
        """Return the largest store time of each broker's rows; that of all rows if the broker is null."""
        names = pc.dictionary_encode(brokers)
        lasts = [
            self.brokers[name].last_us if name in self.brokers else self.last_us
            for name in names.dictionary.to_pylist()
        ]
        codes = numbers_of(names.indices.cast(pa.int64()), null=len(lasts))
        return np.array([*lasts, self.last_us], np.int64)[codes]
