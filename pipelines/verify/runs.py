"""The runs of each queue, put together over the whole log: what repeats, goes back, or is not there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.engine.walk import BadRange
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.queue_check import MAX_NUMBER, Run


@dataclass(frozen=True)
class BadRanges:
    """Where the log holds no intact record; ranges in order, none overlapping."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, bad: Iterable[BadRange]) -> BadRanges:
        """From those of all parts of the log."""
        ordered = sorted(bad, key=lambda each: each.start)
        return cls([each.start for each in ordered], [each.end for each in ordered])

    def has(self, offset: int) -> bool:
        """Whether an offset is in one."""
        place = bisect_right(self.starts, offset) - 1
        return place >= 0 and offset < self.ends[place]

    def any_between(self, first: int, last: int) -> bool:
        """Whether one begins between two offsets."""
        return bisect_left(self.starts, first) < bisect_left(self.starts, last)


def check_order(runs: Sequence[Run], bad: BadRanges, findings: Findings, log: str) -> Sequence[Run]:
    """See that the numbers of one queue rise along the log.

    Args:
        runs: of one queue, in the order of the log.
        bad: what of the log cannot be read.
        findings: takes what is not so; numbers that are left out are another matter, see `loose`.
        log: the folder of the log.

    Returns:
        The runs from where the queue began for the last time: those before are of a topic that was deleted.
    """
    expected, last_offset, begin = None, -1, 0
    for place, run in enumerate(runs):
        if expected is not None and run.first < expected:
            code = _code_of(run, expected, is_behind_damage=bad.any_between(last_offset, run.first_offset))
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


def _code_of(run: Run, expected: int, *, is_behind_damage: bool) -> str:
    if is_behind_damage:
        return "log_stale_records"
    if run.first == 0 and expected > 1:
        return "log_queue_restarted"
    return "log_repeated_number" if run.first == expected - 1 else "log_number_back"


def claimed(runs: Iterable[Run]) -> list[tuple[int, int]]:
    """The numbers that records have: ranges in order, first and behind the last, none touching another."""
    ranges: list[tuple[int, int]] = []
    for first, end in sorted((run.first, run.end) for run in runs):
        if first < 0 or end > MAX_NUMBER:
            continue
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((first, end))
    return ranges
