"""Tests of warnings about clients: a few lines of each kind per minute, and a count of the others."""

from __future__ import annotations

import logging

import pytest

from commitlake.broker_lite.broker.limits import MAX_LINES, WINDOW_SECONDS, LimitedLog
from tests.support.small_stores import Clock


def test_warnings_of_one_kind_have_a_limit_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    log = LimitedLog(logging.getLogger("clients"), clock)
    for number in range(1000):
        log.warning("a connection from %s is refused", number)
    log.warning("another kind: %s", "x")
    assert len(caplog.messages) == MAX_LINES + 1
    log.log_suppressed_warnings()
    assert len(caplog.messages) == MAX_LINES + 1  # its minute has not ended
    clock.now_ms = WINDOW_SECONDS
    log.log_suppressed_warnings()
    assert caplog.messages[MAX_LINES:] == [
        "another kind: x",
        f"{1000 - MAX_LINES} more warnings within {WINDOW_SECONDS} s like: a connection from %s is refused",
    ]
    log.warning("a connection from %s is refused", "later")
    assert caplog.messages[-1] == "a connection from later is refused"


def test_the_count_is_logged_when_the_next_window_begins(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    log = LimitedLog(logging.getLogger("clients"), clock)
    for _ in range(MAX_LINES + 2):
        log.warning("refused")
    clock.now_ms = WINDOW_SECONDS
    log.warning("refused")
    assert caplog.messages[-2:] == [f"2 more warnings within {WINDOW_SECONDS} s like: refused", "refused"]
