"""Interfaces of the sides of an audit, and of profiles that count each side's messages by window.

`SparkSides` implements them with DataFrames, and `LocalSides` with tasks of a runner, without Spark. Both give the same
figures.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.lake.erasures import FORM, NOTHING_ERASED, ErasedPlaces
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.pipelines.audit.moment import Moment
from commitlake.pipelines.audit.span import AuditSpan
from commitlake.schemas.tables.profile import FIGURES, KEY_COLUMNS

if TYPE_CHECKING:
    from commitlake.pipelines.audit.erased import Erased

SHOWN = 5
"""Number of differences, errors and keys of each kind that are shown."""


class Stretch(NamedTuple):
    """Physical offsets of one broker's log, from `first` to before `last`."""

    broker: str
    first: int
    last: int


class Totals(NamedTuple):
    """Number of windows, and of messages in them."""

    windows: int
    messages: int


@dataclass(frozen=True)
class Differences:
    """Windows in which two profiles differ.

    Attributes:
        counts: number of windows by broker and kind of difference ("missing", "unexpected" or "different").
        rows: the first windows of each broker and kind, in the order of `KEY_COLUMNS`: the key, `difference`,
            `different_columns`, and `expected_…` and `found_…` for each compared column. Times are UTC.
    """

    counts: Mapping[tuple[str, str], int]
    rows: Sequence[Mapping[str, Any]]

    @property
    def count(self) -> int:
        """Number of windows that differ."""
        return sum(self.counts.values())


def in_key_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort rows by `KEY_COLUMNS`, rows without a value first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in KEY_COLUMNS if name in row])


class Profile(ABC):
    """One side's messages counted by window, as a table of `AUDIT`. Holds memory or files until its context ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Free memory and files."""

    @abstractmethod
    def correct(self, windows: pa.Table) -> None:
        """Add differences to the figures.

        Args:
            windows: a table of `AUDIT`.
        """

    @abstractmethod
    def totals(self) -> Totals:
        """Count windows and messages."""

    @abstractmethod
    def differences(self, found: Self, columns: Sequence[str] = FIGURES, limit: int = SHOWN) -> Differences:
        """Compare this profile, as the expected one, with another of the same lake.

        Args:
            columns: columns to compare.
            limit: number of differences to return of each broker and kind.
        """


@dataclass(frozen=True)
class Counted:
    """Part of `messages` for which runs recorded counts.

    Attributes:
        runs: number of runs without a profile of their messages.
        stretches: ranges of the brokers' logs of the other runs; None for all.
    """

    runs: int
    stretches: Sequence[Stretch] | None


@dataclass(frozen=True)
class PackedBodies:
    """Messages, and their bodies in the packs.

    Attributes:
        messages: messages as the table has them.
        found: the same with the sizes and CRCs of the bodies that were read.
        errors: the first bodies that cannot be read, with reasons.
    """

    messages: Profile
    found: Profile
    errors: Sequence[str]


def body_error(broker: str, physical_offset: int, error: str) -> str:
    """Return a sentence on a body that cannot be read."""
    return f"{broker} {physical_offset}: {error}"


def key_difference(difference: str, key: str, broker: str, physical_offset: int) -> str:
    """Return a sentence on a row of `message_keys` that only one side has."""
    return f"{difference}: {key!r} of {broker}, {physical_offset}"


@dataclass(frozen=True)
class Sides(ABC):
    """A lake's messages at one moment, as the tables, packs, stores and HBase have them.

    Attributes:
        lake: the lake.
        bodies: root folder of the packs.
        span: time range of messages.
        moment: moment of the lake.
        erased: messages that are erased at that moment.
    """

    lake: Lake
    bodies: str
    span: AuditSpan
    moment: Moment
    erased: Erased

    def since(self, date: datetime.date) -> Self:
        """Return the same sides for messages of a date or later."""
        return replace(self, span=self.span.since(date))

    @property
    def erased_in_stores(self) -> ErasedPlaces:
        """Messages that are erased when they are read from a store, like those of the table."""
        return self.erased.places if self.moment.erased_form >= FORM else NOTHING_ERASED

    def expect_erasures_in_store(self, expected: Profile, stretches: Sequence[Stretch]) -> None:
        """Add the changes by erasures to the profile of a store, if an earlier version has erased the rows."""
        if self.moment.erased_form < FORM:
            self.expect_erasures(expected, stretches)

    def expect_erasures(self, expected: Profile, stretches: Sequence[Stretch] | None) -> None:
        """Add the changes by erasures to a profile of messages as they were before.

        Args:
            expected: profile of the runs' counts.
            stretches: ranges that are compared; None for all.
        """
        windows = self.erased.correction(self.span, stretches)
        if windows is not None:
            expected.correct(windows)

    @abstractmethod
    def messages(self, within: Sequence[Stretch] | None = None) -> Profile:
        """Profile the table.

        Args:
            within: ranges of the brokers' logs to limit it to, which do not overlap.
        """

    @abstractmethod
    def archived(self) -> Profile:
        """Profile the counts that runs recorded."""

    @abstractmethod
    def counted(self) -> Counted | None:
        """Return the part of `messages` with counts; None if no run with messages has counts."""

    @abstractmethod
    def with_bodies(self, kept_since: datetime.date | None) -> AbstractContextManager[PackedBodies]:
        """Read the bodies that the table refers to.

        Args:
            kept_since: bodies of earlier dates may have expired; None if all are kept.
        """

    @abstractmethod
    def store(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice = ANY_FORMAT
    ) -> Profile:
        """Profile the stores, in ranges of the brokers' logs."""

    @abstractmethod
    def hbase(self, options: HBaseOptions) -> Profile:
        """Profile HBase, up to the moment."""

    @abstractmethod
    def different_keys(self, version: int) -> tuple[int, Sequence[str]]:
        """Compare a version of `message_keys` with the keys of all messages.

        Returns:
            The number of rows that only one of them has, and sentences on the first ones.
        """


def stretches_of(ranges: Mapping[str, StoreRange]) -> list[Stretch]:
    """Return ranges of the brokers' logs as a list of `Stretch`."""
    return [Stretch(broker, part.start, part.end) for broker, part in ranges.items()]
