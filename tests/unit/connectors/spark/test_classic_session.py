"""Progress of a session's tasks, as far as it can be tested without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from commitlake.connectors.runtime.runner import CounterGoneError
from commitlake.connectors.spark.classic_session import ClassicSession


class Stage:
    """A stage with a number of finished tasks."""

    def __init__(self, done: int, known: int) -> None:
        self.numCompletedTasks, self.numTasks = done, known


class Session:
    """A session whose tracker reports these moments, one per request, and then fails."""

    def __init__(self, *moments: dict[int, Stage]) -> None:
        self.moments = list(moments)
        self.sparkContext = self
        self.now: dict[int, Stage] = {}

    def statusTracker(self) -> Session:  # noqa: N802 (Spark's name)
        """Return the tracker."""
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        """Advance to the next moment."""
        if not self.moments:
            raise Py4JError("the JVM is gone")
        self.now = self.moments.pop(0)
        return list(self.now)

    def getStageInfo(self, stage: int) -> Stage:  # noqa: N802
        """Return what is known at this moment."""
        return self.now[stage]


def test_finished_stages_count_as_done() -> None:
    session: Any = Session({1: Stage(3, 4)}, {2: Stage(1, 2), 3: Stage(0, 10)}, {})
    count = ClassicSession(session).task_counter()
    assert [count(), count(), count()] == [(3, 4), (4 + 1 + 0, 4 + 2 + 10), (16, 16)]


def test_counts_are_zero_before_the_first_stage() -> None:
    session: Any = Session({})
    assert ClassicSession(session).task_counter()() == (0, 0)


def test_a_jvm_that_has_ended_is_an_error() -> None:
    session: Any = Session()
    with pytest.raises(CounterGoneError, match="the JVM is gone"):
        ClassicSession(session).task_counter()()
