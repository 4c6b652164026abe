"""Comparisons of figures, and their targets.

A run's table leaves out comparisons whose figures it did not measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.benchmarks.runs import Figure, Figures, Name

WORKER_BOUND_MIB = 640
"""Private memory that one of Spark's Python workers may have, for any log."""

WORKER_MIB = "worker MiB"
"""The note of a figure that is compared with the bound."""

MAIN_BODY = 1024
"""Body size to which the targets for Spark apply."""

GROWTH = "g"
JOURNAL_SHARE = 0.8
"""Target of the journal's messages per second, as a share of the CommitLog's."""
GROWTH_ALLOWANCE = 4.3 / 4
"""Factor by which a run's time may grow more than the log."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A comparison.

    Attributes:
        what: what is compared.
        value: result, at the medians.
        unit: of the value; `x` for a factor.
        target: target ratio; None if the comparison is only reported.
        at_most: whether the target is an upper bound; otherwise it is a lower bound.
        least: smallest value of two passes in one round, if both sides took turns.
        most: largest such value.
    """

    what: str
    value: float
    unit: str
    target: float | None
    at_most: bool = False
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Return whether the value meets the target, if there is one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


def ratios(figures: Figures) -> list[Ratio]:
    """Return all comparisons that the figures allow, in the order of the suite."""
    return [
        *_kernel(figures),
        *_spark(figures),
        *_naive(figures),
        *_growth(figures),
        *_journal(figures),
        *_memory(figures),
    ]


def _kernel(figures: Figures) -> Iterator[Ratio]:
    check_targets, decode_targets = {1024: 2.5, 200: 4.0}, {1024: 1.3, 200: 1.3}
    for targets, ours, theirs in (
        (check_targets, "hop and CRC", "recovery's check"),
        (decode_targets, "all columns", "MessageDecoder.decode"),
        (decode_targets, "all columns, spelled out", "MessageDecoder.decode"),
    ):
        for body_bytes, target in targets.items():
            what = f"{ours}, times as fast as {theirs} in Java, {body_bytes}"
            yield from _faster(
                what, figures.get(Name("a", ours, body_bytes)), figures.get(Name("b", theirs, body_bytes)), target
            )


def _spark(figures: Figures) -> Iterator[Ratio]:
    read = figures.get(Name("c", "read, no bodies", MAIN_BODY))
    copied = figures.get(Name("a", "page-cache read", MAIN_BODY))
    if read:
        rates = [run.bytes / run.seconds / 1e9 for run in read.runs]
        yield _absolute(f"Spark reads, no bodies, {MAIN_BODY}", rates, read.bytes_per_second / 1e9, "GB/s", 1.3)
        if copied:
            share = read.bytes_per_second / copied.bytes_per_second
            yield Ratio(
                f"Spark reads, as a share of what one core reads from the page cache, {MAIN_BODY}", share, "x", None
            )
    archived = figures.get(Name("d", "archive", MAIN_BODY))
    if archived:
        rates = [run.messages / run.seconds for run in archived.runs]
        yield _absolute(f"archive, {MAIN_BODY}", rates, archived.messages_per_second, "messages/s", 300_000)
    written = figures.get(Name("f", "rows into Delta", MAIN_BODY))
    packed = figures.get(Name("f", "bodies by zstd", MAIN_BODY))
    if archived and written and packed:
        limit = [rows + bodies for rows, bodies in zip(written.seconds, packed.seconds, strict=True)]
        value = archived.median_seconds / (written.median_seconds + packed.median_seconds)
        what = f"time of archive, in times of Spark's own write and of zstd, {MAIN_BODY}"
        yield _compared(what, archived.seconds, limit, value, 1.6, at_most=True)


def _naive(figures: Figures) -> Iterator[Ratio]:
    ours = figures.get(Name("e", "read, no bodies", MAIN_BODY))
    whole = figures.get(Name("c", "read, no bodies", MAIN_BODY))
    naive = figures.get(Name("e", "binaryFile and a UDF", MAIN_BODY))
    yield from _faster(f"Spark reads, times as fast as a UDF, same sample, one task, {MAIN_BODY}", ours, naive, 15)
    if whole and naive:
        # On a sample, most of our time is the start of the query; the UDF cannot read larger stores.
        rate = naive.bytes_per_second
        values = [run.bytes / run.seconds / rate for run in whole.runs]
        what = f"Spark reads the store, times as fast per byte as a UDF its sample, {MAIN_BODY}"
        yield _absolute(what, values, whole.bytes_per_second / rate, "x", 15)


def _growth(figures: Figures) -> Iterator[Ratio]:
    for what in ("read, no bodies", "archive"):
        sizes = {name.factor: figure for name, figure in figures.items() if (name.section, name.what) == (GROWTH, what)}
        if len(sizes) > 1:
            small, large = min(sizes), max(sizes)
            above, below, factor = sizes[large], sizes[small], large / small
            times = above.median_seconds / below.median_seconds
            if what == "read, no bodies":
                rates = [run.bytes / run.seconds / 1e9 for run in above.runs]
                title = f"Spark reads, no bodies, the largest log, {MAIN_BODY}"
                yield _absolute(title, rates, above.bytes_per_second / 1e9, "GB/s", 1.3)
            title = f"{what}: time for {factor:g} times as much log"
            yield _compared(title, above.seconds, below.seconds, times, factor * GROWTH_ALLOWANCE, at_most=True)


def _journal(figures: Figures) -> Iterator[Ratio]:
    for name, ours in figures.items():
        layout, _, what = name.what.partition(", ")
        if layout == "journal":
            theirs = figures[replace(name, what=f"CommitLog, {what}")]
            yield from _faster(f"the journal, times as fast as the CommitLog: {what}", ours, theirs, JOURNAL_SHARE)


def _memory(figures: Figures) -> Iterator[Ratio]:
    own = [figure.notes[WORKER_MIB] for figure in figures.values() if WORKER_MIB in figure.notes]
    if own:
        yield Ratio("a Python worker's own memory while archiving, at most", max(own), "MiB", WORKER_BOUND_MIB, True)


def _faster(what: str, ours: Figure | None, theirs: Figure | None, target: float) -> Iterator[Ratio]:
    """Return the ratio of our rate to the other's, per byte, which equals that of records."""
    if ours and theirs:
        value = theirs.median_seconds / ours.median_seconds
        yield _compared(what, theirs.seconds, ours.seconds, value, target, at_most=False)


def _compared(
    what: str, above: Sequence[float], below: Sequence[float], value: float, target: float, *, at_most: bool
) -> Ratio:
    pairs = [first / second for first, second in zip(above, below, strict=True)]
    return Ratio(what, value, "x", target, at_most, min(pairs), max(pairs))


def _absolute(what: str, values: Sequence[float], median: float, unit: str, target: float) -> Ratio:
    return Ratio(what, median, unit, target, False, min(values), max(values))
