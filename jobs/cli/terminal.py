"""Guarded standard streams: printed text from logs, names and stores cannot control the terminal.

`guard_standard_streams` replaces standard output and standard error by guarded streams, so that jobs need no code for
this. It guards files and pipes as well, because they may be printed later on a terminal, with `cat` or `tail`.
Colours, progress bars and text that is already printable are written through `unguarded_stream`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any, TextIO, cast

from commitlake.connectors.printable import escape_line, escape_unprintable
from commitlake.jobs.arguments.times import to_local_times
from commitlake.jobs.report.output_formats import current_display
from commitlake.jobs.report.text_table import wrap_lines


class EscapingStream:
    """Stream that escapes control characters except newline and tab, so that they cannot change the terminal."""

    def __init__(self, stream: TextIO, edit: Callable[[str], str] | None = None) -> None:
        """Create a stream that writes escaped text to another stream.

        Args:
            edit: function that changes each text before it is written, if any.
        """
        self.stream = stream
        self._edit = edit

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        self.stream.write(escape_unprintable(text if self._edit is None else self._edit(text)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts with their control characters escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guard_standard_streams(*, is_raw: bool = False, edit_stderr: Callable[[str], str] | None = None) -> Iterator[None]:
    """Replace standard output and standard error by guarded streams while the block runs.

    Args:
        is_raw: whether they stay unguarded.
        edit_stderr: function that changes each text for standard error, if any.
    """
    before = sys.stdout, sys.stderr
    if not is_raw:
        sys.stdout, sys.stderr = _guard_stream(before[0]), _guard_stream(before[1], edit_stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_line(line: str) -> None:
    """Print a line on standard error; newlines in it, from a path or an argument, are shown as escapes.

    With --raw the line is printed unchanged.
    """
    print(escape_line(line) if isinstance(sys.stderr, EscapingStream) else line, file=sys.stderr, flush=True)


def print_text(text: str) -> None:
    """Print lines on standard output, with local times if requested; on a terminal, broken between words."""
    shown = to_local_times(text) if current_display().is_local else text
    is_terminal = isinstance(sys.stdout, EscapingStream) and sys.stdout.isatty()
    print(wrap_lines(shown, get_terminal_size().columns) if is_terminal else shown)


def unguarded_stream(stream: TextIO) -> TextIO:
    """Return the stream below a guarded one, for libraries that draw progress bars or colours from printable text."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def _guard_stream(stream: TextIO, edit_text: Callable[[str], str] | None = None) -> TextIO:
    return cast("TextIO", EscapingStream(stream, edit_text)) if stream is not None else stream
