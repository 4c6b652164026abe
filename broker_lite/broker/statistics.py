"""How much a broker does: counts since its start, and rates over the last minutes, hours and days.

Source: BrokerStatsManager, StatsItem, StoreStatsService (5.5.0). A count is looked at every ten seconds; of these looks
a minute's are kept, of every ten minutes an hour's, of every hour a day's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from commitlake.schemas.remoting.statistics import BrokerStatsData, StatsItem

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_PUT_SIZE = "BROKER_PUT_SIZE"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

MAX_SERIES = 100_000
"""What comes beyond is not counted."""
LOOK_EVERY_MS = 10_000
_DAY_MS = 86_400_000
_WINDOWS = ((10_000, 7), (600_000, 7), (3_600_000, 25))
"""Time between two looks that are kept, ms, and how many are."""


class _Series:
    """One count with its past."""

    __slots__ = ("looks", "morning", "times", "total", "yesterday")

    def __init__(self) -> None:
        self.total = 0
        self.times = 0
        self.morning = 0
        self.yesterday = 0
        self.looks: tuple[deque[tuple[int, int, int]], ...] = tuple(deque(maxlen=size) for _, size in _WINDOWS)

    def look(self, now_ms: int) -> None:
        for looks, (every_ms, _) in zip(self.looks, _WINDOWS, strict=True):
            if not looks or now_ms - looks[-1][0] >= every_ms:
                looks.append((now_ms, self.total, self.times))

    def begin_day(self) -> None:
        self.yesterday, self.morning = self.morning, self.total

    def item(self, window: int) -> StatsItem:
        looks = self.looks[window]
        if len(looks) < 2:
            return StatsItem()
        (first_ms, first_total, first_times), (last_ms, last_total, last_times) = looks[0], looks[-1]
        total, times = last_total - first_total, last_times - first_times
        seconds = (last_ms - first_ms) / 1000
        return StatsItem(total, total / seconds if seconds else 0.0, total / times if times else 0.0)

    def rate(self, now_ms: int) -> float:
        """A second's share of the last minute, the last seconds included."""
        looks = self.looks[0]
        if not looks:
            return 0.0
        first_ms, first_total, _ = looks[0]
        return (self.total - first_total) * 1000 / max(1, now_ms - first_ms)

    def rates(self, now_ms: int) -> list[float]:
        """The same of the last ten seconds, minute and ten minutes; the last as soon as there is a look so long ago."""
        seconds, minutes = self.looks[0], self.looks[1]
        begins = [seconds[max(-2, -len(seconds))], seconds[0]] if seconds else []
        if minutes:
            begins.append(minutes[max(-2, -len(minutes))])
        return [(self.total - total) * 1000 / max(1, now_ms - at_ms) for at_ms, total, _ in begins]


class Statistics:
    """Counts by name and key."""

    def __init__(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self._series: dict[tuple[str, str], _Series] = {}
        self._next_look_ms = now_ms
        self._day = now_ms // _DAY_MS

    def add(self, name: str, key: str, count: int) -> None:
        """Count something that has happened once."""
        series = self._series.get((name, key))
        if series is None:
            if len(self._series) >= MAX_SERIES:
                return
            series = self._series[name, key] = _Series()
            series.looks[0].append((self._next_look_ms, 0, 0))
        series.total += count
        series.times += 1

    def tick(self, now_ms: int) -> None:
        """Look at all counts, if it is time; days are those of UTC."""
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_EVERY_MS
        is_new_day, self._day = now_ms // _DAY_MS > self._day, now_ms // _DAY_MS
        for series in self._series.values():
            series.look(now_ms)
            if is_new_day:
                series.begin_day()

    def total(self, name: str, key: str) -> int:
        """A count since the start."""
        series = self._series.get((name, key))
        return series.total if series else 0

    def mornings(self, name: str, key: str) -> tuple[int, int]:
        """A count as it was when this day began, and the day before."""
        series = self._series.get((name, key))
        return (series.morning, series.yesterday) if series else (0, 0)

    def rate(self, name: str, key: str, now_ms: int) -> float:
        """A second's share of the last minute."""
        series = self._series.get((name, key))
        return series.rate(now_ms) if series else 0.0

    def rates(self, name: str, key: str, now_ms: int) -> list[float]:
        """A second's share of the last ten seconds, minute and ten minutes, as far as there has been time."""
        series = self._series.get((name, key))
        return series.rates(now_ms) if series else [0.0]

    def data(self, name: str, key: str) -> BrokerStatsData | None:
        """A count's minute, hour and day; None where nothing was ever counted."""
        series = self._series.get((name, key))
        return BrokerStatsData(*(series.item(window) for window in range(len(_WINDOWS)))) if series else None

    def drop(self, key: str) -> None:
        """Forget what was counted under a key: a topic or group that is gone."""
        for found in [found for found in self._keys() if key in found[1].split("@")]:
            del self._series[found]

    def _keys(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._series))
