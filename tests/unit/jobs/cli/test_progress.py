"""What is told of long work: on a terminal, elsewhere, and when quiet."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

import pytest

from commitlake.connectors.runtime.local_runner import HERE, ThreadRunner
from commitlake.connectors.runtime.runner import CounterGoneError, Runner, TaskCounter
from commitlake.jobs.cli import progress
from commitlake.jobs.cli.progress import counted_progress, runner_progress
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


class Counting(ThreadRunner):
    """A runner that counts tasks itself: these moments, one a look, and then it cannot be asked any more."""

    def __init__(self, *moments: tuple[int, int]) -> None:
        super().__init__(1)
        self.moments = list(moments)

    def task_counter(self) -> TaskCounter:
        """Return what goes on to the next moment."""
        return self._next

    def _next(self) -> tuple[int, int]:
        if not self.moments:
            raise CounterGoneError
        return self.moments.pop(0)


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


def test_a_runner_that_counts_its_tasks_is_asked_where_bytes_are_not_known(told: Callable[[], list[str]]) -> None:
    with runner_progress(Counting(*[(1, 12)] * 50), "archiving", 0, quiet=False) as advance:
        advance(10)
        wait_until(lambda: told() != [])
    assert set(told()) == {"archiving: 1 of 12 tasks done"}


@pytest.mark.parametrize("runner", [HERE, Counting((1, 12))], ids=["here", "counting"])
def test_bytes_are_told_where_it_is_known_how_many_there_are(runner: Runner, told: Callable[[], list[str]]) -> None:
    with runner_progress(runner, "archiving", 1000, quiet=False) as advance:
        advance(10)
        wait_until(lambda: told() != [])
    assert set(told()) == {"archiving: 10 of 1,000 bytes done"}


def test_while_nothing_is_known_that_is_told(told: Callable[[], list[str]]) -> None:
    with runner_progress(Counting(*[(0, 0)] * 50), "archiving", 0, quiet=False):
        wait_until(lambda: told() != [])
    assert set(told()) == {"archiving: started"}


def test_a_runner_that_can_no_longer_be_asked_is_left_to_tell_why(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with runner_progress(Counting(), "archiving", 0, quiet=False):
        wait_until(lambda: threading.active_count() == before)  # the watcher has given up
    assert capsys.readouterr() == ("", "")


def test_the_watcher_ends_with_the_work_also_where_it_fails() -> None:
    with pytest.raises(ValueError, match="broken"), counted_progress("reading", 10, "bytes", quiet=False):
        raise ValueError("broken")
