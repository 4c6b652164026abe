"""Input for judging a run's quality: data on the run, and its profile in parts that fit into memory.

The judge is a `profile_judge.ProfileJudging` in this process, or a `JudgeSubprocess`.

A row of a profile takes up two kilobytes while it is judged, and the first run on a large cluster has millions. Rules
of the suites do not look beyond a topic, except for sums. So a part consists of whole topics, and the results of parts
are joined. If a run's profile is never in memory as a whole, it comes in pieces of whole topics, which are divided.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.pipelines.quality.report import Judgement, QualityReport

MAX_PART_ROWS = 100_000  # a single topic may exceed it
_TOPIC = ["broker", "topic"]
_SUMS = frozenset({"ExpectColumnSumToBeBetween"})
_LEAST, _GREATEST = "ExpectColumnMinToBeBetween", "ExpectColumnMaxToBeBetween"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Size of the log range that a run read from one broker, and counts of problems in it.

    Attributes:
        log_bytes: size of the range that was read; None if not known.
        bad_ranges: number of ranges without an intact record.
        missing_ranges: number of ranges whose segment is missing.
        marked_rows: number of messages with a value that no column can store; their rows are there.
    """

    log_bytes: int | None = None
    bad_ranges: int = 0
    missing_ranges: int = 0
    marked_rows: int = 0

    @property
    def is_damaged(self) -> bool:
        """True if the log has damaged or missing ranges, which can explain missing messages."""
        return bool(self.bad_ranges or self.missing_ranges)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about an archive run, besides its message counts, that quality checks need.

    Attributes:
        brokers: facts by broker name, including brokers without messages.
        written: number of messages in the data files of all brokers; None if not known.
        now: time of the judgement.
        is_masked: True if rows may be masked: a masked body may be larger than its record.
    """

    brokers: Mapping[str, BrokerFacts] = field(default_factory=dict)
    written: int | None = None
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    is_masked: bool = False


class ProfileJudge(Protocol):
    """Interface of a checker of a run's message counts (profile), which receives them part by part."""

    def add_profile_part(self, profile_part: pa.Table) -> None:
        """Check the counts of some topics, with all time windows of each of them."""
        ...

    def make_report(self) -> QualityReport:
        """Return the results of the expectations for all parts that were added."""
        ...


BeginJudging = Callable[[RunFacts], ProfileJudge]
"""Starts to judge a run's profile by all suites, with facts of the run."""


def split_by_topics(profile: pa.Table, max_rows: int = MAX_PART_ROWS) -> Iterator[pa.Table]:
    """Divide a profile into parts of about `max_rows` rows without splitting a topic; an empty one gives one part.

    Args:
        profile: a table of `PROFILE`; if it is not in order, it is sorted.
        max_rows: largest number of rows of a part; one topic may have more.
    """
    if profile.num_rows <= max_rows:
        yield profile
        return
    if not _has_consecutive_topics(profile):
        profile = profile.take(pc.sort_indices(profile, [(name, "ascending") for name in _TOPIC]))
    begins = [0, *(np.flatnonzero(_topic_changes(profile)) + 1).tolist(), profile.num_rows]
    start = 0
    for before, begin in pairwise(begins):
        if begin - start > max_rows and before > start:
            yield profile.slice(start, before - start)
            start = before
    yield profile.slice(start)


def join_judgements(judgements: Sequence[Judgement]) -> Judgement:
    """Combine the results of one expectation for several parts of a profile into one result."""
    first = judgements[0]
    if len(judgements) == 1:
        return first
    success, observed = all(part.success for part in judgements), _combine_observed_values(judgements)
    # The limits are for the whole sum, so whether the parts meet them says nothing.
    if first.expectation.type in _SUMS and isinstance(observed, int | float):
        least, most = (first.expectation.kwargs.get(name) for name in ("min_value", "max_value"))
        low = least if isinstance(least, int | float) else observed
        high = most if isinstance(most, int | float) else observed
        success = low <= observed <= high
    shown = [example for part in judgements for example in part.examples]
    return replace(
        first,
        success=success,
        observed=observed,
        judged=sum(part.judged for part in judgements),
        unexpected=sum(part.unexpected for part in judgements),
        examples=tuple(shown[: first.max_examples]),
    )


def _combine_observed_values(judgements: Sequence[Judgement]) -> float | int | str | None:
    numbers = [part.observed for part in judgements if isinstance(part.observed, int | float)]
    if not numbers:
        return judgements[0].observed
    kind = judgements[0].expectation.type
    if kind in _SUMS:
        return sum(numbers)
    return min(numbers) if kind == _LEAST else max(numbers) if kind == _GREATEST else judgements[0].observed


def _has_consecutive_topics(profile: pa.Table) -> bool:
    """Return whether the rows of each topic follow each other."""
    return bool(_topic_changes(profile).sum() + 1 == profile.group_by(_TOPIC).aggregate([]).num_rows)


def _topic_changes(profile: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of all rows but the last, True where the next row has another topic."""
    changes = np.zeros(profile.num_rows - 1, bool)
    for name in _TOPIC:
        codes = profile.column(name).combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        changes |= codes[1:] != codes[:-1]
    return changes
