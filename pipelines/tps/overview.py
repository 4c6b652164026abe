"""Questions that describe a whole time range: the total by topic, the overall total, and windows by topic."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.question import MINUTE, SECOND, RatesQuestion, rounded
from commitlake.schemas.time_windows import TimeWindows
from commitlake.schemas.times import EPOCH

MAX_WINDOWS = 96


@dataclass(frozen=True, slots=True)
class Overview:
    """Questions on one time range.

    Attributes:
        by_topic: Question with a row for each topic.
        of_all: Question with one row.
        by_window: Question with a row for each topic and window, in whole windows.
    """

    by_topic: RatesQuestion
    of_all: RatesQuestion
    by_window: RatesQuestion


class NothingArchivedError(LakeError):
    """Nothing is archived in the time range."""


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
    """Return the questions on a time range.

    Args:
        start: Start of the time range; by default the first archived minute.
        end: End of the time range, exclusive; by default the last archived minute.
        window: Length of a window in whole minutes; by default at most `MAX_WINDOWS` windows.
        topics: Topics to count; all if empty, as for the following arguments.
        kinds: Kinds to count.
        brokers: Brokers to count.

    Raises:
        NothingArchivedError: Nothing is archived, or the time range is empty.
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
    by_topic = RatesQuestion(
        ("topic",),
        rounded(start or first, SECOND),
        rounded(end or last, SECOND, up=True),
        topics=topics,
        kinds=kinds,
        brokers=brokers,
    )
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
