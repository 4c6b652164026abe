"""The sides of an audit, and the messages of each, counted by window: interfaces.

`SparkSides` has them as DataFrames; `LocalSides` by tasks of a runner, without Spark. Both give the same figures.
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

from commitlake.connectors.formats.engine.plan import StoreRange
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase.options import Options as HBaseOptions
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.audit.moment import Moment
from commitlake.pipelines.audit.span import Span
from commitlake.schemas.tables.profile import FIGURES, KEY_COLUMNS

if TYPE_CHECKING:
    from commitlake.pipelines.audit.erased import Erased

SHOWN = 5
"""How many differences, errors and keys of a kind are shown."""


class Stretch(NamedTuple):
    """Physical offsets of one broker's log, from `first` to before `last`."""

    broker: str
    first: int
    last: int


class Totals(NamedTuple):
    """How many windows there are, and how many messages in them."""

    windows: int
    messages: int


@dataclass(frozen=True)
class Differences:
    """The windows in which two profiles differ.

    Attributes:
        counts: how many there are, by broker and kind of difference ("missing", "unexpected" or "different").
        rows: the first of each broker and kind, in the order of `KEY_COLUMNS`: the key, `difference`,
            `different_columns`, and `expected_…` and `found_…` for each column that was compared. Times are UTC.
    """

    counts: Mapping[tuple[str, str], int]
    rows: Sequence[Mapping[str, Any]]

    @property
    def count(self) -> int:
        """How many windows differ."""
        return sum(self.counts.values())


def in_key_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort rows by `KEY_COLUMNS`, those without a value first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in KEY_COLUMNS if name in row])


class Profile(ABC):
    """One side's messages, counted by window: a table of `AUDIT`. It holds memory or files until its `with` ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Give up what it holds."""

    @abstractmethod
    def correct(self, windows: pa.Table) -> None:
        """Add differences to its figures.

        Args:
            windows: a table of `AUDIT`.
        """

    @abstractmethod
    def totals(self) -> Totals:
        """Count its windows and messages."""

    @abstractmethod
    def differences(self, found: Self, columns: Sequence[str] = FIGURES, limit: int = SHOWN) -> Differences:
        """Compare it, as what is expected, with another profile of the same lake.

        Args:
            found: the other.
            columns: what is compared.
            limit: how many differences of each broker and kind are given.
        """


@dataclass(frozen=True)
class Counted:
    """The part of `messages` with which the runs' own counts can be compared.

    Attributes:
        runs: how many runs have left no profile of what they took.
        stretches: of the brokers' logs, what the other runs took; None where that is all.
    """

    runs: int
    stretches: Sequence[Stretch] | None


@dataclass(frozen=True)
class Bodies:
    """Messages, and what the packs hold of their bodies.

    Attributes:
        messages: as the table has them.
        found: the same with the sizes and CRCs of the bodies that were found.
        errors: the first bodies that cannot be had, and why.
    """

    messages: Profile
    found: Profile
    errors: Sequence[str]


def body_error(broker: str, physical_offset: int, error: str) -> str:
    """Return the sentence on a body that cannot be had."""
    return f"{broker} {physical_offset}: {error}"


def key_difference(difference: str, key: str, broker: str, physical_offset: int) -> str:
    """Return the sentence on a row of `message_keys` that only one side has."""
    return f"{difference}: {key!r} of {broker}, {physical_offset}"


@dataclass(frozen=True)
class Sides(ABC):
    """One lake's messages at one moment, as each place has them.

    Attributes:
        lake: where the tables lie.
        bodies: root of the packs.
        span: which messages.
        moment: of the lake.
        erased: the messages that are erased by then.
    """

    lake: LakePaths
    bodies: str
    span: Span
    moment: Moment
    erased: Erased

    def since(self, date: datetime.date) -> Self:
        """Return the same for messages of a date or later."""
        return replace(self, span=self.span.since(date))

    def expect_erasures(self, expected: Profile, stretches: Sequence[Stretch] | None) -> None:
        """Add to a profile of messages as they were what the erasures have changed since.

        Args:
            expected: of a store, or of what the runs said that they took.
            stretches: the messages that are compared; None for all.
        """
        windows = self.erased.correction(self.span, stretches)
        if windows is not None:
            expected.correct(windows)

    @abstractmethod
    def messages(self, within: Sequence[Stretch] | None = None) -> Profile:
        """Profile the table.

        Args:
            within: only what lies in these stretches of the brokers' logs, which do not overlap.
        """

    @abstractmethod
    def archived(self) -> Profile:
        """Profile what the runs said that they took."""

    @abstractmethod
    def counted(self) -> Counted | None:
        """Return which runs said what they took; None where none of those that took something did."""

    @abstractmethod
    def with_bodies(self, kept_since: datetime.date | None) -> AbstractContextManager[Bodies]:
        """Read the bodies that the table says are in the packs.

        Args:
            kept_since: bodies of earlier dates may be gone; None where all are kept.
        """

    @abstractmethod
    def store(
        self, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice = ANY_FORMAT
    ) -> Profile:
        """Profile what the stores hold in these ranges of the brokers' logs."""

    @abstractmethod
    def hbase(self, options: HBaseOptions) -> Profile:
        """Profile what HBase holds of what was archived by then."""

    @abstractmethod
    def different_keys(self, version: int) -> tuple[int, Sequence[str]]:
        """Compare a version of `message_keys` with the keys of all messages.

        Returns:
            How many rows only one of them has, and sentences on the first.
        """


def stretches_of(ranges: Mapping[str, StoreRange]) -> list[Stretch]:
    """Return ranges of the brokers' logs as stretches."""
    return [Stretch(broker, part.start, part.end) for broker, part in ranges.items()]
