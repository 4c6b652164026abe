"""Measurements, and the order in which they are made.

Compared passes take turns, round by round, so that a machine that is slower for a minute affects both sides of a ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Run:
    """Measurements of one pass.

    Attributes:
        seconds: its time.
        bytes: log bytes that it processed.
        messages: records in them; 0 for a pass that does not parse records.
    """

    seconds: float
    bytes: int
    messages: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """Name of a measurement.

    Attributes:
        section: letter of the part of the suite.
        what: the pass.
        body_bytes: size of a body in the store.
        factor: the store's size, in multiples of the run's.
    """

    section: str
    what: str
    body_bytes: int
    factor: int = 1


@dataclass(slots=True)
class Figure:
    """All passes of one kind, in order, without warm-ups.

    Attributes:
        runs: the passes.
        notes: other figures, by name: MiB of memory, bytes on disk.
    """

    runs: list[Run] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> list[float]:
        """Times of the passes."""
        return [run.seconds for run in self.runs]

    @property
    def median_seconds(self) -> float:
        """Median time of the passes."""
        return statistics.median(self.seconds)

    @property
    def bytes_per_second(self) -> float:
        """Log bytes per second, at the median."""
        return self.runs[0].bytes / self.median_seconds

    @property
    def messages_per_second(self) -> float:
        """Records per second, at the median."""
        return self.runs[0].messages / self.median_seconds


Figures = dict[Name, Figure]
Step = Callable[[], Run]
Steps = list[tuple[Name, Step]]


def take_turns(steps: Sequence[tuple[Name, Step]], runs: int, warm_ups: int = 1) -> Figures:
    """Run every step once per round.

    Args:
        steps: what to measure, in the order of a round.
        runs: number of rounds that count.
        warm_ups: number of rounds before them that do not count.

    Raises:
        AssertionError: if two passes of one kind, or two kinds over one store, saw different numbers of records.
    """
    figures = {name: Figure() for name, _ in steps}
    for number in range(-warm_ups, runs):
        for name, step in steps:
            run = step()
            if number >= 0:
                figures[name].runs.append(run)
    for store in {(name.body_bytes, name.factor) for name in figures}:
        passes = [figures[name] for name in figures if (name.body_bytes, name.factor) == store]
        found = {run.messages for figure in passes for run in figure.runs if run.messages}
        assert len(found) <= 1, f"bodies of {store[0]} bytes: expected one number of records, found {sorted(found)}"
    return figures
