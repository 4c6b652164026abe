"""Statistics of a broker: counts since its start, and rates over the last minutes, hours and days.

Source: BrokerStatsManager, StatsItem, StoreStatsService (5.5.0). Each count is sampled every ten seconds; a minute of
these samples is kept, an hour of samples every ten minutes, and a day of hourly samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from commitlake.schemas.remoting.statistics_bodies import BrokerStatsData, StatsItem

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_PUT_SIZE = "BROKER_PUT_SIZE"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

MAX_SERIES = 100_000
"""Further series are not counted."""
SAMPLE_INTERVAL_MS = 10_000
_DAY_MS = 86_400_000
_WINDOWS = ((10_000, 7), (600_000, 7), (3_600_000, 25))
"""Interval between two samples in ms, and the number of samples kept."""


class _CounterSeries:
    """Running total of one statistic, with samples of its recent values, from which rates are computed."""

    __slots__ = ("morning", "samples", "times", "total", "yesterday")

    def __init__(self) -> None:
        self.total = 0
        self.times = 0
        self.morning = 0
        self.yesterday = 0
        self.samples: tuple[deque[tuple[int, int, int]], ...] = tuple(deque(maxlen=size) for _, size in _WINDOWS)

    def add_sample(self, now_ms: int) -> None:
        for samples, (every_ms, _) in zip(self.samples, _WINDOWS, strict=True):
            if not samples or now_ms - samples[-1][0] >= every_ms:
                samples.append((now_ms, self.total, self.times))

    def begin_day(self) -> None:
        self.yesterday, self.morning = self.morning, self.total

    def stats_of_window(self, window: int) -> StatsItem:
        samples = self.samples[window]
        if len(samples) < 2:
            return StatsItem()
        (first_ms, first_total, first_times), (last_ms, last_total, last_times) = samples[0], samples[-1]
        total, times = last_total - first_total, last_times - first_times
        seconds = (last_ms - first_ms) / 1000
        return StatsItem(total, total / seconds if seconds else 0.0, total / times if times else 0.0)

    def rate(self, now_ms: int) -> float:
        """Return the rate per second over the last minute, including the time since the last sample."""
        samples = self.samples[0]
        if not samples:
            return 0.0
        first_ms, first_total, _ = samples[0]
        return (self.total - first_total) * 1000 / max(1, now_ms - first_ms)

    def rates(self, now_ms: int) -> list[float]:
        """Return the rates per second over the last ten seconds, minute and, once there is a sample, ten minutes."""
        seconds, minutes = self.samples[0], self.samples[1]
        begins = [seconds[max(-2, -len(seconds))], seconds[0]] if seconds else []
        if minutes:
            begins.append(minutes[max(-2, -len(minutes))])
        return [(self.total - total) * 1000 / max(1, now_ms - at_ms) for at_ms, total, _ in begins]


class Statistics:
    """Running totals by name and key, such as ("TOPIC_PUT_NUMS", topic), with their rates."""

    def __init__(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self._series: dict[tuple[str, str], _CounterSeries] = {}
        self._next_sample_ms = now_ms
        self._day = now_ms // _DAY_MS

    def add(self, name: str, key: str, count: int) -> None:
        """Add to a count."""
        series = self._series.get((name, key))
        if series is None:
            if len(self._series) >= MAX_SERIES:
                return
            series = self._series[name, key] = _CounterSeries()
            series.samples[0].append((self._next_sample_ms, 0, 0))
        series.total += count
        series.times += 1

    def take_due_samples(self, now_ms: int) -> None:
        """Take a sample of each count if the interval has passed; days begin at midnight UTC."""
        if now_ms < self._next_sample_ms:
            return
        self._next_sample_ms = now_ms + SAMPLE_INTERVAL_MS
        is_new_day, self._day = now_ms // _DAY_MS > self._day, now_ms // _DAY_MS
        for series in self._series.values():
            series.add_sample(now_ms)
            if is_new_day:
                series.begin_day()

    def total(self, name: str, key: str) -> int:
        """Return the total of a statistic since the start of the broker."""
        series = self._series.get((name, key))
        return series.total if series else 0

    def day_start_totals(self, name: str, key: str) -> tuple[int, int]:
        """Return the totals of a statistic at the beginning of today and of yesterday."""
        series = self._series.get((name, key))
        return (series.morning, series.yesterday) if series else (0, 0)

    def rate(self, name: str, key: str, now_ms: int) -> float:
        """Return the rate of a statistic per second over the last minute."""
        series = self._series.get((name, key))
        return series.rate(now_ms) if series else 0.0

    def rates(self, name: str, key: str, now_ms: int) -> list[float]:
        """Return the rates per second over the last ten seconds, minute and ten minutes, as far as samples exist."""
        series = self._series.get((name, key))
        return series.rates(now_ms) if series else [0.0]

    def stats_data(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the statistic's values for the last minute, hour and day, or None if there is no such statistic."""
        series = self._series.get((name, key))
        return BrokerStatsData(*(series.stats_of_window(window) for window in range(len(_WINDOWS)))) if series else None

    def remove_key(self, key: str) -> None:
        """Remove all statistics of a deleted topic or group."""
        for found in [found for found in self._all_keys() if key in found[1].split("@")]:
            del self._series[found]

    def _all_keys(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._series))
