"""Rate-limited warnings: a client that reconnects again and again must not fill the disk with log lines.

The first lines of each kind of warning in a minute are logged; the others are counted, and the count is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

WINDOW_SECONDS = 60
MAX_LINES = 10
"""Maximum number of lines of one kind in a window."""


class LimitedLog:
    """Logger of warnings with a limit for each kind of warning."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        """Start with empty windows.

        Args:
            logger: receives the lines.
            clock: returns the time in seconds.
        """
        self._logger = logger
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def warning(self, sentence: str, *values: object) -> None:
        """Log a warning, or only count it if its kind has reached the limit.

        Args:
            sentence: format string; it identifies the kind of warning, and must not contain text from a client.
            values: values for the format string.
        """
        now = self._clock()
        start, lines = self._windows.get(sentence, (now, 0))
        if now - start >= WINDOW_SECONDS:
            self.report()
            start, lines = now, 0
        self._windows[sentence] = (start, lines + 1)
        if lines < MAX_LINES:
            self._logger.warning(sentence, *values)

    def report(self) -> None:
        """Log the number of suppressed warnings for each kind whose window has ended; call this regularly."""
        now = self._clock()
        for sentence, (start, lines) in list(self._windows.items()):
            if now - start < WINDOW_SECONDS:
                continue
            del self._windows[sentence]
            if lines > MAX_LINES:
                self._logger.warning("%d more warnings within %d s like: %s", lines - MAX_LINES, now - start, sentence)
