"""A process that is started early answers calls, raises their errors, and ends with the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path

import pytest

from commitlake.connectors.runtime.side_process import SideProcess
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.integer_parsing import require_int

_WAIT = threading.Event()


def prepare() -> None:
    """Report that it ran."""
    sys.modules["prepared"] = sys


def is_prepared() -> bool:
    return "prepared" in sys.modules


def wait_forever() -> None:
    _WAIT.wait()


def clean_up_at_the_end(mark: Path) -> None:
    util.Finalize(None, _clean_up, (mark,), exitpriority=0)


def _clean_up(mark: Path) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # as `close` may, at this moment
    mark.write_text("done")


@pytest.fixture
def process() -> Iterator[SideProcess]:
    """A process that has been prepared."""
    found = SideProcess(prepare)
    yield found
    found.close()


def test_calls_are_answered_in_turn_after_the_preparation(process: SideProcess) -> None:
    assert process.call(is_prepared)
    assert not is_prepared()
    assert process.call(os.getpid) == process.call(os.getpid) != os.getpid()


def test_an_error_is_raised_as_itself_and_the_next_call_is_answered(process: SideProcess) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        process.call(int, "x")
    with pytest.raises(ValueError, match="queue"):
        process.call(require_int, "x", name="queue", minimum=0, maximum=9)
    assert process.call(int, "7") == 7


def test_a_killed_process_is_an_error(process: SideProcess) -> None:
    os.kill(process.call(os.getpid), signal.SIGKILL)
    with pytest.raises(CommitLakeError, match="was killed"):
        process.call(os.getpid)


def test_a_process_can_be_closed_during_its_preparation() -> None:
    before = len(multiprocessing.active_children())
    process = SideProcess(wait_forever)
    process.close()
    assert len(multiprocessing.active_children()) == before


def test_a_signal_does_not_stop_the_cleanup(tmp_path: Path) -> None:
    process = SideProcess(prepare)
    process.call(clean_up_at_the_end, tmp_path / "mark")
    process.close()
    assert (tmp_path / "mark").read_text() == "done"
