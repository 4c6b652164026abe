"""Messages per window as small bars: SVG within a page, without a script."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from html import escape

_HEIGHT = 100


def bars(
    counts: Mapping[datetime.datetime, int], begin: datetime.datetime, end: datetime.datetime, columns: int
) -> str:
    """Bars over a stretch of time.

    Args:
        counts: messages by the beginning of their window.
        begin: of the first window of all.
        end: of the last one's end; the same for all pictures that are to be compared.
        columns: at most so many bars; each holds the windows that begin in its part of the time.
    """
    seconds = max((end - begin).total_seconds(), 1.0)
    heights = [0] * columns
    for window, count in counts.items():
        place = int((window - begin).total_seconds() / seconds * columns)
        heights[min(max(place, 0), columns - 1)] += count
    top = max(heights, default=0)
    drawn = "".join(
        f'<rect x="{place}" y="{_HEIGHT - _scaled(height, top)}" width=".8" height="{_scaled(height, top)}"/>'
        for place, height in enumerate(heights)
        if height
    )
    label = escape(f"messages per window, {_time(begin)} to {_time(end)} UTC, at most {top:,} in a bar")
    return (
        f'<svg viewBox="0 0 {columns} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"<title>{label}</title>{drawn}</svg>"
    )


def _scaled(height: int, top: int) -> int:
    """Something is always to be seen where there is something."""
    return max(4, round(height / top * _HEIGHT))


def _time(when: datetime.datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"
