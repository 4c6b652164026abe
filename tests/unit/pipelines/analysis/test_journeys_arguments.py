"""Questions on journeys, from arguments."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from commitlake.pipelines.analysis.journeys_arguments import make_journeys_question
from commitlake.schemas.errors import UsageError
from commitlake.schemas.times import parse_iso

DAY = datetime.timedelta(days=1)


def test_arguments_become_a_question() -> None:
    asked = make_journeys_question("2026-11-20", parse_iso("2026-11-21"), "2 hours", 10, topic="orders", tag=["a", "b"])
    assert (asked.since, asked.until) == (parse_iso("2026-11-20"), parse_iso("2026-11-21"))
    assert (asked.margin, asked.max_steps) == (datetime.timedelta(hours=2), 10)
    assert asked.selection.column_values == [("topic", ["orders"]), ("tags", ["a", "b"])]


@pytest.mark.parametrize("margin", ["0s", datetime.timedelta()])
def test_a_margin_may_be_nothing(margin: Any) -> None:
    asked = make_journeys_question("2026-11-20", "2026-11-21", margin)
    assert (asked.read_begin, asked.read_end) == (asked.since, asked.until)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"since": "2026-11-21"}, "expected a start before the end, found 2026-11-21T00:00:00"),
        ({"since": None}, "expected a time for each of them, found None"),
        ({"until": "tomorrow"}, "until: expected a time in ISO 8601"),
        ({"margin": "-1s"}, "margin: expected whole seconds"),
        ({"margin": "1 week"}, "margin: expected whole seconds"),
        ({"max_steps": 0}, "max_steps: expected 1 to 1000, found 0"),
        ({"max_steps": 1001}, "max_steps: expected 1 to 1000, found 1001"),
        ({"max_steps": "7"}, "max_steps: expected 1 to 1000, found '7'"),
        ({"topic": []}, "topic: expected at least one value"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"since": "2026-11-20", "until": "2026-11-21", "margin": DAY, **changes}
    with pytest.raises(UsageError, match=message):
        make_journeys_question(**arguments)
