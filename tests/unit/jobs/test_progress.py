"""What is told of long work: on a terminal, elsewhere, and when quiet."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest
from py4j.protocol import Py4JError

from commitlake.jobs.cli import progress
from commitlake.jobs.cli.progress import counted_progress, spark_progress


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become hundredths."""
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.1)


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


def test_lines_tell_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with counted_progress("reading", 10_000, "bytes", quiet=False) as advance:
        advance(1000)
        advance(234)
        time.sleep(0.25)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading: 1,234 of 10,000 bytes done, 0 s"
    assert 1 <= len(lines) <= 3  # one each tenth


def test_quiet_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with counted_progress("reading", 10, "bytes", quiet=True) as advance:
        advance(10)
        time.sleep(0.15)
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
        time.sleep(0.3)
    assert "reading" in terminal.getvalue()
    assert "25%" in terminal.getvalue()


def test_stages_that_are_over_count_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = {1: Stage(3, 4)}, {2: Stage(1, 2), 3: Stage(0, 10)}
    spark: Any = Spark(first, *[second] * 50)
    tasks = progress._Tasks(spark)
    assert [tasks.count(), tasks.count()] == [(3, 4), (4 + 1 + 0, 4 + 2 + 10)]
    with spark_progress(spark, "archiving", quiet=False):
        time.sleep(0.15)
    assert set(capsys.readouterr().err.splitlines()) == {"archiving: 1 of 12 tasks done, 0 s"}


def test_before_the_first_stage_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    spark: Any = Spark(*[{}] * 50)
    with spark_progress(spark, "archiving", quiet=False):
        time.sleep(0.15)
    assert set(capsys.readouterr().err.splitlines()) == {"archiving: started, 0 s"}


def test_a_jvm_that_goes_away_is_left_to_the_work_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    spark: Any = Spark()
    with spark_progress(spark, "archiving", quiet=False):
        time.sleep(0.15)
    assert capsys.readouterr() == ("", "")


def test_the_watcher_ends_with_the_work_also_where_it_fails() -> None:
    with pytest.raises(ValueError, match="broken"), counted_progress("reading", 10, "bytes", quiet=False):
        raise ValueError("broken")
