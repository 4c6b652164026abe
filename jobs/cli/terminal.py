"""Guarded standard streams: printed text from logs, names and stores cannot control the terminal.

`guarded_streams` replaces standard output and standard error by guarded streams, so that jobs need no code for this. It
guards files and pipes as well, because they may be printed later on a terminal, with `cat` or `tail`. Colours, progress
bars and text that is already printable are written through `trusted`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from commitlake.connectors.printable import printable, printable_line


class GuardedStream:
    """A stream that escapes control characters except newline and tab; see `connectors.printable`."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts with their control characters escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded_streams(*, raw: bool = False) -> Iterator[None]:
    """Guard standard output and standard error.

    Args:
        raw: whether they stay unguarded.
    """
    before = sys.stdout, sys.stderr
    if not raw:
        sys.stdout, sys.stderr = (_guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_line(line: str) -> None:
    """Print a line on standard error; newlines in it, from a path or an argument, are shown as escapes.

    With --raw the line is printed unchanged.
    """
    print(printable_line(line) if isinstance(sys.stderr, GuardedStream) else line, file=sys.stderr, flush=True)


def trusted(stream: TextIO) -> TextIO:
    """Return the unguarded stream, for libraries that draw progress bars or colours from printable text."""
    return stream.stream if isinstance(stream, GuardedStream) else stream


def _guarded(stream: TextIO) -> TextIO:
    return cast("TextIO", GuardedStream(stream)) if stream is not None else stream
