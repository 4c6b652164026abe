"""Progress of long work on standard error: a bar on a terminal, otherwise occasional lines; nothing with --quiet.

A thread shows the count twice a second, so the work itself only has to count. The first use of an installation
compiles the reader before a byte is done, which takes many seconds; the thread sees this by the compiled functions that
processes of this machine store.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from commitlake.connectors.printable import escape_line
from commitlake.connectors.runtime.runner import CounterGoneError, Runner
from commitlake.jobs.cli.terminal import unguarded_stream
from commitlake.schemas.formatted_counts import format_count

_POLL_SECONDS = 0.5
_LINE_SECONDS = 10.0
_COMPILING_SECONDS = 10.0
"""Time without a new compiled function after which compilation has ended."""
_FUNCTION_CACHE = "commitlake.connectors.reading.kernel.function_cache"

# (done, total); total is 0 until it is known.
Count = Callable[[], tuple[int, int]]


@contextmanager
def runner_progress(runner: Runner, label: str, total_bytes: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show progress in bytes if the total is known, otherwise in tasks if the runner counts them.

    Args:
        label: name of the work, in a few words.
        total_bytes: bytes to process in total; 0 if unknown.
        quiet: show nothing.

    Yields:
        A function to call with the number of further bytes that are done.
    """
    counter = None if total_bytes else runner.task_counter()
    if counter is None:
        with counted_progress(label, total_bytes, "bytes", quiet=quiet) as advance:
            yield advance
        return
    with _show_progress(counter, label, "tasks", quiet=quiet):
        yield lambda _: None


class _CompilationProgress:
    """State of the just-in-time compilation of the log reader, as far as this process can observe it."""

    def __init__(self) -> None:
        self._stored: int | None = None
        self._grown_at = -_COMPILING_SECONDS
        self.progress_text()

    def progress_text(self) -> str:
        """Return a text about a running compilation; empty if nothing is being compiled. Call this twice a second."""
        module = sys.modules.get(_FUNCTION_CACHE)  # loading it takes a second, and work without it compiles nothing
        stored = None if module is None else module.compiled_function_count()
        if stored is None:
            return ""
        now = time.monotonic()
        if self._stored is not None and stored > self._stored:
            self._grown_at = now
        self._stored = stored
        if now - self._grown_at >= _COMPILING_SECONDS:
            return ""
        return f"compiling the reader, once; {format_count(stored, 'function')} so far"


@contextmanager
def counted_progress(label: str, total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show progress towards a known total.

    Args:
        label: name of the work, in a few words.
        total: amount of work in total.
        unit: the unit that is counted: bytes, messages.
        quiet: show nothing.

    Yields:
        A function to call with the further amount that is done.
    """
    done = 0

    def advance_progress(amount: int) -> None:
        nonlocal done
        done += amount

    with _show_progress(lambda: (done, total), label, unit, quiet=quiet):
        yield advance_progress


@contextmanager
def _show_progress(read_progress: Count, label: str, unit: str, *, quiet: bool) -> Iterator[None]:
    if quiet:
        yield
        return
    stop = threading.Event()
    watch = _show_bar if sys.stderr.isatty() else _show_lines
    watcher = threading.Thread(target=_run_display, args=(watch, read_progress, label, unit, stop), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _run_display(show_progress: Callable[..., None], *arguments: object) -> None:
    """Update the progress display until the watched work ends."""
    try:
        show_progress(*arguments)
    except (CounterGoneError, OSError):
        return


def _show_bar(read_progress: Count, label: str, unit: str, stop_event: threading.Event) -> None:
    compilation = _CompilationProgress()
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=unguarded_stream(sys.stderr)), transient=True) as progress:
        name = escape_line(label)
        bar = progress.add_task(name, total=None)
        while not stop_event.wait(_POLL_SECONDS):
            done, known = read_progress()
            compiling = "" if done else compilation.progress_text()
            shown = f"{name}: {compiling}" if compiling else name
            progress.update(bar, description=shown, completed=done, total=known or None if done else None)


def _show_lines(read_progress: Count, label: str, unit: str, stop_event: threading.Event) -> None:
    started = time.monotonic()
    following = _LINE_SECONDS
    compilation = _CompilationProgress()
    while not stop_event.wait(_POLL_SECONDS):
        elapsed = time.monotonic() - started
        compiling = compilation.progress_text()
        if elapsed >= following:
            done, known = read_progress()
            so_far = f"{done:,} of {known:,} {unit} done" if known else "started"
            if compiling and not done:
                so_far = compiling
            print(f"{label}: {so_far}, {elapsed:.0f} s", file=sys.stderr, flush=True)
            following += _LINE_SECONDS
