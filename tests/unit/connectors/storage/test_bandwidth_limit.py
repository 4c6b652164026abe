"""Limit of the bytes per second that are sent."""

from __future__ import annotations

import pytest

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit, PacedBody


def test_pace_keeps_the_rate_and_never_sleeps_without_one() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = BandwidthLimit(1000, lambda: now[0], sleep)
    for _ in range(50):
        pace.wait_for_bytes(100)
    assert now[0] == pytest.approx(5.0, abs=0.3)
    now[0] += 1000  # a pause allows no long burst
    before = now[0]
    for _ in range(50):
        pace.wait_for_bytes(100)
    assert now[0] - before == pytest.approx(5.0, abs=0.3)
    BandwidthLimit(None, lambda: now[0], print).wait_for_bytes(1 << 40)


def test_body_is_paced_when_it_is_sent_and_not_when_it_is_signed() -> None:
    taken: list[float] = []
    body = PacedBody(b"x" * 100_000, BandwidthLimit(1e6, lambda: 0.0, taken.append))
    assert len(body) == 100_000
    assert len(body.read(1 << 20)) == 100_000
    assert taken == []
    body.seek(0)
    while body.read(16384):
        pass
    assert taken[-1] == pytest.approx(0.1, abs=0.001)
