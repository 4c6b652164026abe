"""A broker's messageDelayLevel: how long each level's messages wait."""

from __future__ import annotations

import re

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_MS_OF_UNIT = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]{1,10})([smhd])")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays of levels 1, 2, 3, ... in ms.

    Args:
        text: numbers with a unit (s, m, h, d), one space between them.

    Raises:
        ValueError: for anything else.
    """
    levels = []
    for part in text.split(" "):
        match = _DELAY.fullmatch(part)
        if not match:
            raise ValueError(f"expected delays as '1s 5m 2h', found {part!r}")
        levels.append(int(match[1]) * _MS_OF_UNIT[match[2]])
    return tuple(levels)


DEFAULT_DELAY_LEVELS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
