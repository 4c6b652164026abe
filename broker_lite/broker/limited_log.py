"""Warnings of what clients do: a client that connects again and again must not fill the disk with log lines.

Of each kind of warning the first lines in a minute are logged, the others are counted, and their count is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

WINDOW_SECONDS = 60
MAX_LINES = 10
"""Lines of one kind in a window."""


class LimitedLog:
    """A logger of warnings, with a limit for each kind of them."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        """Begin with nothing logged.

        Args:
            logger: Gets the lines.
            clock: Gives seconds.
        """
        self._logger = logger
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def warning(self, sentence: str, *values: object) -> None:
        """Log a warning, or count it.

        Args:
            sentence: With places for the values; it tells the kind, and never comes from a client.
            values: What the sentence has places for.
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
        """Log how many warnings were only counted, of the kinds whose window has ended; to be called now and then."""
        now = self._clock()
        for sentence, (start, lines) in list(self._windows.items()):
            if now - start < WINDOW_SECONDS:
                continue
            del self._windows[sentence]
            if lines > MAX_LINES:
                self._logger.warning(
                    "%d more warnings in %d s of the kind %r", lines - MAX_LINES, now - start, sentence
                )
