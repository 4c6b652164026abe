"""Progress of long work, on standard error: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_POLL_SECONDS = 0.5
_LINE_SECONDS = 10.0


@contextmanager
def spark_progress(spark: SparkSession, what: str, *, quiet: bool) -> Iterator[None]:
    """Show how many tasks of the jobs that run meanwhile are done.

    Args:
        spark: the session whose jobs are watched.
        what: what the work is, in a few words.
        quiet: show nothing.
    """
    if quiet:
        yield
        return
    stop = threading.Event()
    show = _show_bar if sys.stderr.isatty() else _show_lines
    watcher = threading.Thread(target=show, args=(_Tasks(spark), what, stop), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


class _Tasks:
    """Tasks done and known of all jobs since the first look."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._seen: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """(done, known) so far."""
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._seen[stage] = (info.numCompletedTasks, info.numTasks)
        active = set(self._tracker.getActiveStageIds())
        done = sum(known if stage not in active else done for stage, (done, known) in self._seen.items())
        return done, sum(known for _, known in self._seen.values())


def _show_bar(tasks: _Tasks, what: str, stop: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        while not stop.wait(_POLL_SECONDS):
            done, known = tasks.count()
            progress.update(bar, completed=done, total=known or None)


def _show_lines(tasks: _Tasks, what: str, stop: threading.Event) -> None:
    started = time.monotonic()
    following = _LINE_SECONDS
    while not stop.wait(_POLL_SECONDS):
        elapsed = time.monotonic() - started
        if elapsed >= following:
            done, known = tasks.count()
            tasks_done = f"{done} of {known} tasks done" if known else "started"
            print(f"{what}: {tasks_done}, {elapsed:.0f} s", file=sys.stderr, flush=True)
            following += _LINE_SECONDS
