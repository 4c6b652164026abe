"""The question on journeys that `AnalysisLake.journeys` and `AnalysisLake.topic_flow` ask, from their arguments."""

from __future__ import annotations

import datetime

from commitlake.pipelines.analysis.rates_arguments import make_window
from commitlake.pipelines.analysis.selection_arguments import Texts, Time, make_selection, parse_time_argument
from commitlake.pipelines.journeys.journeys_query import MAX_STEPS, JourneysQuestion
from commitlake.schemas.errors import UsageError

_NOTHING = datetime.timedelta()


def make_journeys_question(
    since: Time,
    until: Time,
    margin: datetime.timedelta | str,
    max_steps: int = MAX_STEPS,
    *,
    broker: Texts | None = None,
    topic: Texts | None = None,
    key: Texts | None = None,
    tag: Texts | None = None,
    where: str | None = None,
) -> JourneysQuestion:
    """Check the arguments of `AnalysisLake.journeys` and `AnalysisLake.topic_flow`, and return them as one object.

    Raises:
        UsageError: if the window is empty, or an argument is not valid.

    >>> make_journeys_question("2026-11-20", "2026-11-21", "2 hours").read_begin
    datetime.datetime(2026, 11, 19, 22, 0, tzinfo=datetime.timezone.utc)
    """
    start, end = parse_time_argument("since", since), parse_time_argument("until", until)
    if start is None or end is None:
        raise UsageError("since and until: expected a time for each of them, found None")
    if start >= end:
        raise UsageError(
            f"since and until: expected a start before the end, found {start.isoformat()} and {end.isoformat()}"
        )
    if not isinstance(max_steps, int) or not 1 <= max_steps <= MAX_STEPS:
        raise UsageError(f"max_steps: expected 1 to {MAX_STEPS}, found {max_steps!r:.50}")
    length = _NOTHING if margin in (_NOTHING, "0s") else make_window(margin, "margin")
    selection = make_selection(broker=broker, topic=topic, key=key, tag=tag, where=where)
    return JourneysQuestion(start, end, length, max_steps, selection)
