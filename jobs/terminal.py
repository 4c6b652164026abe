"""Standard streams that are terminals: what jobs print of logs, names and stores cannot command them.

`guarded_streams` puts a stream in front of each standard stream that is a terminal, so that no job has to think of it;
files and pipes get what is written. Colours and progress bars are our own, and go through `trusted`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from connectors.printable import printable


class TerminalStream:
    """A terminal that is given no control characters but newline and tab; see `connectors.printable`."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text with escapes for what a terminal would obey."""
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts likewise."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


@contextmanager
def guarded_streams(*, raw: bool = False) -> Iterator[None]:
    """Guard standard output and standard error, where they are terminals.

    Args:
        raw: leave them as they are.
    """
    before = sys.stdout, sys.stderr
    if not raw:
        sys.stdout, sys.stderr = (_guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def trusted(stream: TextIO) -> TextIO:
    """Return the stream itself, for what a library draws of text that is printable already."""
    return stream.terminal if isinstance(stream, TerminalStream) else stream


def _guarded(stream: TextIO) -> TextIO:
    return cast("TextIO", TerminalStream(stream)) if stream is not None and stream.isatty() else stream
