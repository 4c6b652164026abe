"""Checks of queue offsets over the whole log: repeated, decreasing and missing ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from commitlake.connectors.formats.engine.walk import BadRange
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import MAX_NUMBER, Run


@dataclass(frozen=True)
class BadRanges:
    """Ranges of the log without an intact record, in order and not overlapping."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, bad: Iterable[BadRange]) -> BadRanges:
        """Collect the bad ranges of all parts of the log."""
        ordered = sorted(bad, key=lambda each: each.start)
        return cls([each.start for each in ordered], [each.end for each in ordered])

    def has(self, offset: int) -> bool:
        """Return whether an offset is in a bad range."""
        place = bisect_right(self.starts, offset) - 1
        return place >= 0 and offset < self.ends[place]

    def any_between(self, first: int, last: int) -> bool:
        """Return whether a bad range begins between two offsets."""
        return bisect_left(self.starts, first) < bisect_left(self.starts, last)


Restarts = Mapping[str, Sequence[tuple[int, int]]]
"""For each topic, the times that it was created again, each as two physical offsets: its last record before that time,
and its first record after it."""


def restarts_of(queues: Mapping[tuple[str, int], Sequence[Run]]) -> Restarts:
    """Return when topics were created again, as far as the records of a single queue prove it.

    A queue whose offsets begin at 0 again after a single record is no proof: the record may have been stored twice.

    Args:
        queues: the runs of each topic and queue, in log order.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, _), runs in queues.items():
        expected = 0
        for before, run in pairwise(runs):
            expected = max(expected, before.end)
            if run.first == 0 and expected > 1:
                found[topic].append((before.last_offset, run.first_offset))
                expected = 0
    return found


def check_order(
    runs: Sequence[Run], bad: BadRanges, findings: Findings, log: str, restarts: Sequence[tuple[int, int]] = ()
) -> Sequence[Run]:
    """Check that the queue offsets of one queue increase along the log.

    Args:
        runs: the runs of one queue, in log order.
        bad: ranges of the log that cannot be read.
        findings: receives offsets that repeat or decrease; missing ones are checked in `loose`.
        log: name of the log's folder.
        restarts: when the topic was created again, as its other queues show it.

    Returns:
        The runs since the queue last began at 0. Earlier runs belong to a deleted topic of the same name.
    """
    expected, last_offset, begin = None, -1, 0
    for place, run in enumerate(runs):
        if expected is not None and run.first < expected:
            is_new_topic = any(old < run.first_offset and last_offset < new for old, new in restarts)
            is_after_damage = bad.any_between(last_offset, run.first_offset)
            code = _code_of(run, expected, is_after_damage=is_after_damage, is_new_topic=is_new_topic)
            findings.add(
                Finding(code, log, None, run.first_offset, f"{run.topic}/{run.queue_id}", run.first,
                        f"number {run.first}", f"number {expected}")
            )  # fmt: skip
            is_new = code == "log_queue_restarted"
            expected, begin = (run.end, place) if is_new else (max(expected, run.end), begin)
        else:
            expected = run.end
        last_offset = run.last_offset
    return runs[begin:]


def _code_of(run: Run, expected: int, *, is_after_damage: bool, is_new_topic: bool) -> str:
    if is_after_damage:
        return "log_stale_records"
    if run.first == 0 and (expected > 1 or is_new_topic):
        return "log_queue_restarted"
    return "log_repeated_number" if run.first == expected - 1 else "log_number_back"


def claimed(runs: Iterable[Run]) -> list[tuple[int, int]]:
    """Return the queue offsets of records as disjoint ranges (first, end), in order."""
    ranges: list[tuple[int, int]] = []
    for first, end in sorted((run.first, run.end) for run in runs):
        if first < 0 or end > MAX_NUMBER:
            continue
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((first, end))
    return ranges
