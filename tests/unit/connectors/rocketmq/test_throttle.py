"""A throttled reader takes as long as its rate requires."""

from __future__ import annotations

import pytest

from commitlake.connectors.rocketmq.throttle import RateLimit, Throttle


class Clock:
    """A clock that advances only by the time waited."""

    now = 50.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        (RateLimit(messages=100), 3.2),
        (RateLimit(bytes=1000), 10),
        (RateLimit(100, 1000), 10),
        (RateLimit(), 0),
        (RateLimit(100).share_per_reader(2), 6.4),
    ],
)
def test_reading_takes_as_long_as_the_rate_requires(rate: RateLimit, seconds: float) -> None:
    clock = Clock()
    throttle = Throttle(rate, clock, clock.sleep)
    for _ in range(10):
        throttle.record_and_wait(32, 1000)
    assert clock.now - 50 == pytest.approx(seconds)


def test_unused_time_is_not_added_to_later_reads() -> None:
    clock = Clock()
    throttle = Throttle(RateLimit(messages=10), clock, clock.sleep)
    clock.now += 100
    throttle.record_and_wait(10, 0)
    throttle.record_and_wait(10, 0)
    assert clock.now - 150 == pytest.approx(1.9)
