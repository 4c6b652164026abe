"""What is told of long work: on a terminal, elsewhere, and when quiet."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError

from commitlake.jobs.cli import progress
from commitlake.jobs.cli.progress import counted_progress, spark_progress
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become hundredths."""
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.1)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What standard error has had so far: whole lines, without how long the work took."""
    parts: list[str] = []

    def lines() -> list[str]:
        parts.append(capsys.readouterr().err)
        return [line.rpartition(", ")[0] for line in "".join(parts).split("\n")[:-1]]

    return lines


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


class Stage:
    """A stage of which so many tasks are done."""

    def __init__(self, done: int, known: int) -> None:
        self.numCompletedTasks, self.numTasks = done, known


class Spark:
    """A session whose tracker tells these moments, one a look, and fails at the end of them where asked to."""

    def __init__(self, *moments: dict[int, Stage]) -> None:
        self.moments = list(moments)
        self.sparkContext = self
        self.now: dict[int, Stage] = {}

    def statusTracker(self) -> Spark:  # noqa: N802 (Spark's name)
        """The tracker."""
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        """Goes on to the next moment."""
        if not self.moments:
            raise Py4JError("the JVM is gone")
        self.now = self.moments.pop(0)
        return list(self.now)

    def getStageInfo(self, stage: int) -> Stage:  # noqa: N802
        """Of this moment."""
        return self.now[stage]


def test_lines_tell_how_much_is_done(told: Callable[[], list[str]]) -> None:
    with counted_progress("reading", 10_000, "bytes", quiet=False) as advance:
        advance(1000)
        advance(234)
        wait_until(lambda: len(told()) >= 2)
    assert set(told()) == {"reading: 1,234 of 10,000 bytes done"}


def test_quiet_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with counted_progress("reading", 10, "bytes", quiet=True) as advance:
        advance(10)
        assert threading.active_count() == before
    assert capsys.readouterr() == ("", "")


def test_short_work_says_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with counted_progress("reading", 10, "bytes", quiet=False):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with counted_progress("reading", 4, "bytes", quiet=False) as advance:
        advance(1)
        wait_until(lambda: "25%" in terminal.getvalue())
    assert "reading" in terminal.getvalue()


def test_stages_that_are_over_count_as_done(told: Callable[[], list[str]]) -> None:
    first, second = {1: Stage(3, 4)}, {2: Stage(1, 2), 3: Stage(0, 10)}
    spark: Any = Spark(first, *[second] * 50)
    tasks = progress._Tasks(spark)
    assert [tasks.count(), tasks.count()] == [(3, 4), (4 + 1 + 0, 4 + 2 + 10)]
    with spark_progress(spark, "archiving", quiet=False):
        wait_until(lambda: told() != [])
    assert set(told()) == {"archiving: 1 of 12 tasks done"}


def test_before_the_first_stage_nothing_is_known(told: Callable[[], list[str]]) -> None:
    spark: Any = Spark(*[{}] * 50)
    with spark_progress(spark, "archiving", quiet=False):
        wait_until(lambda: told() != [])
    assert set(told()) == {"archiving: started"}


def test_a_jvm_that_goes_away_is_left_to_the_work_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    spark: Any = Spark()
    before = threading.active_count()
    with spark_progress(spark, "archiving", quiet=False):
        wait_until(lambda: threading.active_count() == before)  # the watcher has given up
    assert capsys.readouterr() == ("", "")


def test_the_watcher_ends_with_the_work_also_where_it_fails() -> None:
    with pytest.raises(ValueError, match="broken"), counted_progress("reading", 10, "bytes", quiet=False):
        raise ValueError("broken")
