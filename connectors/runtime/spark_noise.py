"""What Spark says on standard error that concerns nobody, and that no setting silences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Said by every JVM that is asked for the module, which Spark always does.
_WARNINGS = ("WARNING: Using incubator modules", "WARNING: package sun.security.action")
_TRACEBACK = "Traceback (most recent call last):"
_BROKEN_PIPE = "BrokenPipeError:"
_DAEMON = "/pyspark/daemon.py"


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they come; those of a traceback once it has ended.

    A Python worker that looks data sources up, or plans a read, sends one more number behind its answer. The JVM does
    not wait for it, and on a busy machine may have closed the pipe: the worker then prints a traceback, though nothing
    is lost.
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
