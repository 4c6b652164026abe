"""The question on rates that `AnalysisLake.tps` asks, from its arguments."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace

from commitlake.pipelines.analysis.selection_arguments import Texts, parse_text_arguments
from commitlake.pipelines.tps.rates_query import MINUTE, RatesQuestion, round_time
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.rates import RATE_GROUPS
from commitlake.schemas.times import EPOCH, LAST_TIME

_LENGTH = re.compile(r"([0-9]+) ?(s|m|h|d|seconds?|minutes?|hours?|days?)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MAX_COUNT = 999_999
_SECOND, _LONGEST = datetime.timedelta(seconds=1), datetime.timedelta(days=36_525)


def make_window(window: datetime.timedelta | str, argument_name: str = "window") -> datetime.timedelta:
    """Return the length of time windows as a `timedelta`, given as such or as a text such as '5 minutes'.

    Args:
        window: the length, as a caller gives it.
        argument_name: name of the argument, for the error.

    Raises:
        UsageError: if it is no length of a second to 100 years, in whole seconds.

    >>> make_window("5 minutes"), make_window("90s")
    (datetime.timedelta(seconds=300), datetime.timedelta(seconds=90))
    """
    length = window
    if isinstance(window, str):
        match = _LENGTH.fullmatch(window.strip().lower())
        count = parse_int(match[1], 0, _MAX_COUNT) if match else None
        length = datetime.timedelta(**{_UNITS[match[2][0]]: count}) if match and count else datetime.timedelta()
    if not isinstance(length, datetime.timedelta) or not _SECOND <= length <= _LONGEST or length % _SECOND:
        expected = (
            "expected whole seconds, up to 100 years: a timedelta, or a text such as '30s', '5 minutes' or '1 day'"
        )
        raise UsageError(f"{argument_name}: {expected}, found {window!r}")
    return length


def make_rates_question(by: Texts, window: datetime.timedelta | str, selection: Selection) -> RatesQuestion:
    """Check the arguments of `AnalysisLake.tps`, and return them as one object.

    Tags, and conditions that only a message has, are counted in `messages`: `topic_minutes` names frequent tags only.

    Raises:
        UsageError: if a group is unknown or given twice, or the window is not valid.
    """
    groups = parse_text_arguments("by", by) if by else []
    if len(set(groups)) < len(groups):
        raise UsageError(f"by: expected each column once, found {', '.join(groups)}")
    for name in groups:
        if name not in RATE_GROUPS.names:
            raise UsageError(f"by: expected some of {', '.join(RATE_GROUPS.names)}, found {name!r}")
    is_by_message = "tag" in groups or not {"tags", "keys", "ids", "where"}.isdisjoint(selection.given_conditions)
    return RatesQuestion(
        [name.replace("_", "-") for name in groups],
        selection.start or EPOCH,
        selection.end or round_time(LAST_TIME, MINUTE),
        make_window(window),
        selection=replace(selection, start=None, end=None),
        is_by_second=is_by_message,
    )
