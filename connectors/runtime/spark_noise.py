"""Filter for messages of Spark on standard error that are irrelevant, and that no setting suppresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Every JVM prints this for the module, which Spark always requests.
_WARNINGS = ("WARNING: Using incubator modules", "WARNING: package sun.security.action")
_TRACEBACK = "Traceback (most recent call last):"
_BROKEN_PIPE = "BrokenPipeError:"
_DAEMON = "/pyspark/daemon.py"


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without noise; the lines of a traceback are yielded when it has ended.

    A Python worker that looks up data sources, or plans a read, sends one more number after its answer. The JVM does
    not wait for it, and on a busy machine may have closed the pipe: the worker then prints a traceback, although
    nothing is lost.
    """
    traceback: list[str] = []
    for line in lines:
        if line.startswith(_TRACEBACK) or (traceback and line[:1].isspace()):
            traceback.append(line)
            continue
        if not (traceback and line.startswith(_BROKEN_PIPE) and _is_daemons_own(traceback)):
            yield from traceback
            if not line.startswith(_WARNINGS):
                yield line
        traceback = []
    yield from traceback


def _is_daemons_own(traceback: list[str]) -> bool:
    frames = [line for line in traceback if line.lstrip().startswith('File "')]
    return bool(frames) and all(_DAEMON in frame for frame in frames)
