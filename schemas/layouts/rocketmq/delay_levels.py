"""Setting `messageDelayLevel` of a broker: the delay of each level.

A delayed message is stored in the schedule topic, in the queue `level - 1`. The third field of its queue entry is its
delivery time: store time plus the delay of its level. Source: ScheduleMessageService.parseDelayLevel and
computeDeliverTimestamp (RocketMQ 4.9.7, 5.5.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAY_UNIT_MS = 1_000
"""Every delay is a multiple of this, because its smallest unit is a second."""
_MS_OF_UNIT = {"s": DELAY_UNIT_MS, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]{1,9})([smhd])")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse the delays of levels 1, 2, 3, ... into milliseconds.

    Args:
        text: numbers with a unit (s, m, h, d), separated by one space each.

    Raises:
        ValueError: if the text has another form.
    """
    levels = []
    for part in text.split(" "):
        match = _DELAY.fullmatch(part)
        if not match:
            raise ValueError(f"expected delays such as '1s 5m 2h', found {part[:40]!r}")
        levels.append(int(match[1]) * _MS_OF_UNIT[match[2]])
    return tuple(levels)


def format_delay_levels(levels_ms: Iterable[int]) -> str:
    """Format delays as in a broker.conf, each in the largest unit that fits.

    >>> format_delay_levels((1_000, 90_000, 7_200_000))
    '1s 90s 2h'
    """
    return " ".join(_format(level) for level in levels_ms)


def _format(delay_ms: int) -> str:
    unit = next(unit for unit in reversed(_MS_OF_UNIT) if delay_ms % _MS_OF_UNIT[unit] == 0)
    return f"{delay_ms // _MS_OF_UNIT[unit]}{unit}"


DEFAULT_DELAY_LEVELS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
