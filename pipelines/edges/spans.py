"""How far a lake goes for each broker: this says why an end of a step is absent."""

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
class Span:
    """What the lake has of one broker.

    Attributes:
        first_offset: least physical offset of its rows.
        end_offset: one more than the greatest.
        first_us: least time at which a row was stored, microseconds since 1970.
        last_us: the greatest.
    """

    first_offset: int
    end_offset: int
    first_us: int
    last_us: int


@dataclass(frozen=True)
class Spans:
    """What the lake has of all brokers; it can be pickled.

    Attributes:
        brokers: by name.
        has_expired: whether rows of `messages` were dropped because of their age.
        pulled: brokers of which the last run has pulled, so that rows need not come in the order of the log.
    """

    brokers: Mapping[str, Span] = field(default_factory=dict)
    has_expired: bool = False
    pulled: frozenset[str] = frozenset()

    @property
    def first_us(self) -> int:
        """The least time at which any row was stored."""
        return min((span.first_us for span in self.brokers.values()), default=0)

    @property
    def last_us(self) -> int:
        """The greatest time at which any row was stored."""
        return max((span.last_us for span in self.brokers.values()), default=0)

    @property
    def _before(self) -> str:
        return str(AbsentReason.EXPIRED if self.has_expired else AbsentReason.BEFORE_ARCHIVE)

    def at_places(self, brokers: pa.Array, offsets: pa.Array) -> pa.Array:
        """Return why there is no record at some places of the brokers' logs."""
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
        """Return why the lake has no record that came before others, of the same broker, within `LINK_DAYS`.

        Args:
            brokers: of the others.
            times: int64, when these were stored.
            by_client: which of these a client sent, so that what came before may be of another broker.
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

    def last_of(self, brokers: pa.Array) -> Array:
        """Return the greatest time at which a row of each broker was stored, and of all where the broker is null."""
        names = pc.dictionary_encode(brokers)
        lasts = [
            self.brokers[name].last_us if name in self.brokers else self.last_us
            for name in names.dictionary.to_pylist()
        ]
        codes = numbers_of(names.indices.cast(pa.int64()), null=len(lasts))
        return np.array([*lasts, self.last_us], np.int64)[codes]
