"""Rows of lag summed up by group, the worst group first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlake.pipelines.lag.measure import Bounds, Lag
from commitlake.pipelines.lag.verdicts import Verdict

GROUP_KINDS = frozenset({"group", "retry"})
"""Kinds of rows that are of a consumer group."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """How far a group is behind in all.

    Attributes:
        group: Its name.
        rows: Its rows, the worst first.
    """

    group: str
    rows: Sequence[Lag]

    @property
    def worst(self) -> Lag:
        """The row with the gravest verdict; of several, that whose next message has waited longest."""
        return self.rows[0]

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict of all queues."""
        return self.worst.judged.verdict

    @property
    def messages(self) -> Bounds:
        """Messages behind in all queues."""
        return summed(row.messages for row in self.rows)

    @property
    def bytes(self) -> Bounds:
        """Of their records."""
        return summed(row.bytes for row in self.rows)

    @property
    def seconds(self) -> Bounds:
        """How long the message that has waited longest has been waiting."""
        highs = [row.seconds.high for row in self.rows]
        known = [high for high in highs if high is not None]
        low = max(row.seconds.low for row in self.rows)
        return Bounds(low, max(known) if len(known) == len(highs) else None)

    @property
    def topics(self) -> list[str]:
        """The topics in which it is not well, else all of them."""
        ill = {row.topic for row in self.rows if row.judged.verdict is not Verdict.OK}
        return sorted(ill or {row.topic for row in self.rows})


def summed(figures: Iterable[Bounds]) -> Bounds:
    """Return the sum of some figures; it has no upper bound if one of them has none."""
    low, high = 0.0, 0.0
    is_bounded = True
    for figure in figures:
        low += figure.low
        high += figure.high or 0.0
        is_bounded = is_bounded and figure.high is not None
    return Bounds(low, high if is_bounded else None)


def worst_first(rows: Iterable[Lag]) -> list[Lag]:
    """Return rows by gravity of their verdicts, then by time."""
    return sorted(
        rows, key=lambda row: (-row.judged.verdict.gravity, -(row.seconds.high or row.seconds.low), row.topic)
    )


def by_group(rows: Iterable[Lag]) -> list[GroupSummary]:
    """Return the groups of rows, the worst group first."""
    found: dict[str, list[Lag]] = defaultdict(list)
    for row in worst_first(row for row in rows if row.kind in GROUP_KINDS):
        found[row.group].append(row)
    return [GroupSummary(group, group_rows) for group, group_rows in found.items()]
