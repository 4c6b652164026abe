"""The pace of a replay, measured with a test clock."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.pipelines.replay.sending.rate_limit import SendPace


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        """Return the seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    """A clock."""
    return Clock()


def pace_of(clock: Clock, rate: float = 0, speed: float = 0) -> SendPace:
    return SendPace(rate, speed, clock=clock.time, sleep=clock.sleep)


@pytest.mark.parametrize("rate", [0.5, 7, 100, 5000])
def test_every_ten_seconds_have_as_many_messages_as_the_rate_allows(clock: Clock, rate: float) -> None:
    pace = pace_of(clock, rate)
    sent: list[tuple[float, int]] = []
    while clock.now < 1060:
        together = pace.count_sendable_now(np.zeros(1000, np.int64))
        assert pace.wait(together, 0)
        sent.append((clock.now, together))
    for start in range(1000, 1050, 5):
        inside = sum(count for at, count in sent if start <= at < start + 10)
        assert inside == pytest.approx(10 * rate, rel=0.05, abs=1)


def test_without_a_limit_there_is_no_wait(clock: Clock) -> None:
    pace = pace_of(clock)
    assert all(pace.wait(1000, 0) for _ in range(100))
    assert clock.now == 1000
    assert pace.count_sendable_now(np.zeros(1000, np.int64)) == 1000


def test_messages_keep_their_distance_in_time(clock: Clock) -> None:
    pace = pace_of(clock, speed=2)
    at = []
    for stored_ms in (50_000, 50_500, 54_000):
        assert pace.wait(1, stored_ms)
        at.append(clock.now - 1000)
    assert at == pytest.approx([0, 0.25, 2.0], abs=0.01)


def test_a_changed_rate_applies_to_the_next_messages(clock: Clock) -> None:
    pace = pace_of(clock, 1)
    assert pace.wait(1, 0)
    pace.set_rate(1000)
    before = clock.now
    for _ in range(100):
        assert pace.wait(10, 0)
    assert clock.now - before == pytest.approx(1.0, abs=0.1)


def test_a_stopped_replay_sends_no_message(clock: Clock) -> None:
    pace = pace_of(clock)
    pace.stop()
    assert not pace.wait(1, 0)


def test_a_paused_replay_waits_until_it_is_resumed(clock: Clock) -> None:
    pace = SendPace(clock=clock.time, sleep=lambda _: pace.set_paused(is_paused=False))
    pace.set_paused(is_paused=True)
    assert pace.wait(1, 0)


def test_a_changed_speed_applies_from_the_next_message(clock: Clock) -> None:
    pace = pace_of(clock, speed=1)
    assert pace.wait(1, 0)
    pace.set_speed(10)
    before = clock.now
    for stored_ms in (60_000, 70_000, 80_000):
        assert pace.wait(1, stored_ms)
    assert clock.now - before == pytest.approx(2.0, abs=0.01)
    pace.set_speed(0)
    assert pace.wait(1, 1_000_000)
    assert clock.now - before == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("change", ["rate", "speed"])
def test_a_waiting_replay_applies_a_change(clock: Clock, change: str) -> None:
    pace: SendPace

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 1005 and (pace.rate, pace.speed) == slow:
            (pace.set_rate if change == "rate" else pace.set_speed)(1000)

    slow = (0.001, 0) if change == "rate" else (0, 0.001)
    pace = SendPace(*slow, clock=clock.time, sleep=sleep)
    assert pace.wait(1, 0)
    assert pace.wait(1, 5000)  # at the old pace, after an hour
    assert clock.now == pytest.approx(1005.2, abs=0.2)


def test_messages_due_during_a_pause_are_not_sent_faster_afterwards(clock: Clock) -> None:
    pace = pace_of(clock, speed=1)
    assert pace.wait(1, 0)
    pace.set_paused(is_paused=True)
    clock.sleep(3600)
    pace.set_paused(is_paused=False)
    before = clock.now
    for stored_ms in (1000, 2000, 3000):
        assert pace.wait(1, stored_ms)
    assert clock.now - before == pytest.approx(2.0, abs=0.01)


def test_messages_stored_together_are_sent_together(clock: Clock) -> None:
    pace = pace_of(clock, speed=10)
    stored_ms = np.array([50_000, 50_500, 51_000, 51_001, 60_000], np.int64)  # a tenth of a second of sending: 1000 ms
    assert pace.count_sendable_now(stored_ms) == 3
    assert pace.count_sendable_now(stored_ms[3:]) == 1
    assert pace_of(clock).count_sendable_now(stored_ms) == 5
    assert pace_of(clock, rate=20, speed=10).count_sendable_now(stored_ms) == 2


def test_messages_are_not_sent_faster_after_the_target_was_unreachable(clock: Clock) -> None:
    pace = pace_of(clock, speed=1)
    assert pace.wait(1, 50_000)
    clock.sleep(60)  # the target is away
    pace.restart_speed_clock()
    at = []
    for stored_ms in (51_000, 52_000, 53_000):
        assert pace.wait(1, stored_ms)
        at.append(clock.now - 1060)
    assert at == pytest.approx([0, 1, 2], abs=0.01)
