"""The questions that give a picture of a whole time: all of it by topic, without topics, and by window."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.question import MINUTE, RatesQuestion
from commitlake.schemas.time_windows import TimeWindows
from commitlake.schemas.times import EPOCH

MAX_WINDOWS = 96


@dataclass(frozen=True, slots=True)
class Overview:
    """Questions about one time.

    Attributes:
        by_topic: A row for each topic.
        of_all: One row.
        by_window: A row for each topic and window; of whole windows.
    """

    by_topic: RatesQuestion
    of_all: RatesQuestion
    by_window: RatesQuestion


class NothingArchivedError(LakeError):
    """A time of which nothing is archived."""


def overview(
    coverage: Coverage,
    *,
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
    window: datetime.timedelta | None = None,
    topics: Sequence[str] = (),
    kinds: Sequence[str] = (),
    brokers: Sequence[str] = (),
) -> Overview:
    """Return the questions about a time.

    Args:
        coverage: Which times the lake has.
        start: Of the time; the first archived minute where it is not given.
        end: Of the time, exclusive; the last archived minute likewise.
        window: Length of the windows, of whole minutes; where it is not given, at most `MAX_WINDOWS` windows.
        topics: Only these; all where empty, as for what follows.
        kinds: Only these.
        brokers: Only these.

    Raises:
        NothingArchivedError: Nothing is archived, or the time is empty.
    """
    whole = coverage.whole
    if whole is None:
        raise NothingArchivedError("no message is archived, so there are no rates")
    first = EPOCH + ((start or whole.start) - EPOCH) // MINUTE * MINUTE
    last = EPOCH - (EPOCH - (end or whole.end)) // MINUTE * MINUTE
    if first >= last:
        raise NothingArchivedError(
            f"nothing is archived from {first:%Y-%m-%dT%H:%M}Z to {last:%Y-%m-%dT%H:%M}Z: expected a time between "
            f"{whole.start:%Y-%m-%dT%H:%M}Z and {whole.end:%Y-%m-%dT%H:%M}Z"
        )
    if window is None:
        length = TimeWindows.covering(first, last, MAX_WINDOWS).length
    else:
        length = max(MINUTE, window // MINUTE * MINUTE)
    by_topic = RatesQuestion(("topic",), first, last, topics=topics, kinds=kinds, brokers=brokers)
    return Overview(
        by_topic=by_topic,
        of_all=replace(by_topic, by=()),
        by_window=replace(
            by_topic,
            start=EPOCH + (first - EPOCH) // length * length,
            end=EPOCH - (EPOCH - last) // length * length,
            window=length,
        ),
    )
