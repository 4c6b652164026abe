"""Tests of the progress of long work: on a terminal, elsewhere, and with --quiet."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

import pytest

from commitlake.connectors.reading.kernel import function_cache
from commitlake.connectors.runtime.local_runner import HERE, ThreadRunner
from commitlake.connectors.runtime.runner import CounterGoneError, Runner, TaskCounter
from commitlake.jobs.cli import progress
from commitlake.jobs.cli.progress import counted_progress, runner_progress
from tests.support.waiting import let_pass, wait_until


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the intervals of seconds into hundredths of a second."""
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.005)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.1)


@pytest.fixture
def printed_lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """A function that returns the whole lines on standard error so far, without the time that the work took."""
    parts: list[str] = []

    def lines() -> list[str]:
        parts.append(capsys.readouterr().err)
        return [line.rpartition(", ")[0] for line in "".join(parts).split("\n")[:-1]]

    return lines


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


class Counting(ThreadRunner):
    """A runner that counts its tasks: each call returns the next of these counts, and calls after the last one fail."""

    def __init__(self, *moments: tuple[int, int]) -> None:
        super().__init__(1)
        self.moments = list(moments)

    def task_counter(self) -> TaskCounter:
        """Return a function that gives the next count."""
        return self._next

    def _next(self) -> tuple[int, int]:
        if not self.moments:
            raise CounterGoneError
        return self.moments.pop(0)


def test_lines_state_how_much_is_done(printed_lines: Callable[[], list[str]]) -> None:
    with counted_progress("reading", 10_000, "bytes", quiet=False) as advance:
        advance(1000)
        advance(234)
        wait_until(lambda: len(printed_lines()) >= 2)
    assert set(printed_lines()) == {"reading: 1,234 of 10,000 bytes done"}


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that sets the number of compiled functions that this machine has."""
    counts = [100]
    monkeypatch.setattr(function_cache, "compiled_function_count", lambda: counts[0])
    return lambda count: counts.__setitem__(0, count)


def test_compilation_before_the_first_byte_is_named(
    stored: Callable[[int], None], printed_lines: Callable[[], list[str]]
) -> None:
    with counted_progress("reading", 10, "bytes", quiet=False) as advance:
        let_pass(0.05, "the first line is printed before any function is compiled")
        stored(126)
        wait_until(lambda: printed_lines() != [])
        assert set(printed_lines()) == {"reading: compiling the reader, once; 126 functions so far"}
        advance(1)
        wait_until(lambda: "reading: 1 of 10 bytes done" in printed_lines())


def test_work_without_compilation_does_not_name_it(
    stored: Callable[[int], None], printed_lines: Callable[[], list[str]]
) -> None:
    with counted_progress("reading", 10, "bytes", quiet=False):
        wait_until(lambda: printed_lines() != [])
    assert set(printed_lines()) == {"reading: 0 of 10 bytes done"}


def test_a_bar_names_compilation(monkeypatch: pytest.MonkeyPatch, stored: Callable[[int], None]) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "stderr", terminal)
    with counted_progress("reading", 4, "bytes", quiet=False):
        wait_until(lambda: "reading" in terminal.getvalue())
        stored(126)
        wait_until(lambda: "reading: compiling the reader, once; 126 functions so far" in terminal.getvalue())
    assert "0%" not in terminal.getvalue()


def test_quiet_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with counted_progress("reading", 10, "bytes", quiet=True) as advance:
        advance(10)
        assert threading.active_count() == before
    assert capsys.readouterr() == ("", "")


def test_short_work_prints_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_tasks_are_counted_if_the_number_of_bytes_is_not_known(printed_lines: Callable[[], list[str]]) -> None:
    with runner_progress(Counting(*[(1, 12)] * 50), "archiving", 0, quiet=False) as advance:
        advance(10)
        wait_until(lambda: printed_lines() != [])
    assert set(printed_lines()) == {"archiving: 1 of 12 tasks done"}


@pytest.mark.parametrize("runner", [HERE, Counting((1, 12))], ids=["here", "counting"])
def test_bytes_are_counted_if_their_number_is_known(runner: Runner, printed_lines: Callable[[], list[str]]) -> None:
    with runner_progress(runner, "archiving", 1000, quiet=False) as advance:
        advance(10)
        wait_until(lambda: printed_lines() != [])
    assert set(printed_lines()) == {"archiving: 10 of 1,000 bytes done"}


def test_started_is_printed_while_no_count_is_known(printed_lines: Callable[[], list[str]]) -> None:
    with runner_progress(Counting(*[(0, 0)] * 50), "archiving", 0, quiet=False):
        wait_until(lambda: printed_lines() != [])
    assert set(printed_lines()) == {"archiving: started"}


def test_the_watcher_ends_silently_if_the_task_counter_fails(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with runner_progress(Counting(), "archiving", 0, quiet=False):
        wait_until(lambda: threading.active_count() == before)  # the watcher has given up
    assert capsys.readouterr() == ("", "")


def test_the_watcher_ends_if_the_work_fails() -> None:
    with pytest.raises(ValueError, match="broken"), counted_progress("reading", 10, "bytes", quiet=False):
        raise ValueError("broken")
