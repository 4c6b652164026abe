"""`--log-format json`: everything that a job prints on standard error, as one JSON object per line.

Each object has `time` (ISO 8601, UTC), `level` (DEBUG, INFO, WARNING or ERROR), `command`, `logger` (a module's, or
`commitlake` for the job's own lines) and `message`. Lines that the job prints itself (progress, summary, warnings,
errors) and log messages of libraries go the same way, so that a log collector needs one parser. The stack trace of a
log message is in `exception`.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from commitlake.connectors.printable import escape_json
from commitlake.jobs.cli.terminal import unguarded_stream

_MAX_LINE = 64 << 10
"""A longer line is printed in parts, so that memory stays bounded."""


@contextmanager
def print_stderr_as_json(command: str) -> Iterator[None]:
    """Print each line of standard error as a JSON object.

    Args:
        command: name of the job.
    """
    before = sys.stderr
    if before is None:
        yield
        return
    stream = JsonLogStream(before, command)
    sys.stderr = cast("TextIO", stream)
    try:
        yield
    finally:
        stream.print_last_line()
        sys.stderr = before


class JsonLogStream:
    """A text stream that turns lines into JSON objects.

    Args:
        stream: stream to which the objects are printed.
        command: the job's name.
    """

    def __init__(self, stream: TextIO, command: str) -> None:
        self._stream = stream
        self._command = command
        self._rest = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Print each complete line of the text as a JSON object, and keep the rest until its newline arrives."""
        with self._lock:
            *lines, self._rest = (self._rest + text).replace("\r", "\n").split("\n")
            while len(self._rest) > _MAX_LINE:
                lines.append(self._rest[:_MAX_LINE])
                self._rest = self._rest[_MAX_LINE:]
            for line in lines:
                self._print_line(line)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts, of which each complete line is printed as a JSON object."""
        for line in lines:
            self.write(line)

    def emit(self, entry: dict[str, Any]) -> None:
        """Print an object as one line of JSON."""
        with self._lock:
            self._write_json_line(entry)

    def print_last_line(self) -> None:
        """Print the last line, if it did not end with a newline."""
        with self._lock:
            rest, self._rest = self._rest, ""
            self._print_line(rest)
        self.flush()

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Return False, because a JSON stream never draws progress bars."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _print_line(self, line: str) -> None:
        if line.strip():
            self._write_json_line({"level": _log_level_of(line), "logger": "commitlake", "message": line.rstrip()})

    def _write_json_line(self, entry: dict[str, Any]) -> None:
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {"time": time, "level": entry.pop("level"), "command": self._command, **entry}
        self._stream.write(escape_json(json.dumps(document, ensure_ascii=False, default=str)) + "\n")


class JsonLogHandler(logging.Handler):
    """Log handler that prints log messages as JSON objects on the stream that `print_stderr_as_json` has installed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log message as one object."""
        entry = {"level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            entry["exception"] = logging.Formatter().formatException(record.exc_info)
        stream: object = unguarded_stream(sys.stderr)
        if isinstance(stream, JsonLogStream):
            stream.emit(entry)
        else:
            self.handleError(record)


def _log_level_of(line: str) -> str:
    head = line[:200]
    if ": error: " in head:
        return "ERROR"
    return "WARNING" if "warning: " in head else "INFO"
