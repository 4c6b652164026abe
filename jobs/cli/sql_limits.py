"""Limits on the time and the memory of SQL that a user has written: a query, or a condition.

`repeat('a', 2000000000)` needs gigabytes, and a recursive WITH may have no end. The engine, which is compiled, can
neither be interrupted nor limited in all its functions. So a thread watches this process, and ends it with exit code 4
as soon as it exceeds a limit. A process that does not belong to the command alone, such as a notebook, has no limits.
"""

from __future__ import annotations

import datetime
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli.process import exit_immediately, runs_in_own_process
from commitlake.schemas.errors import ExitCode

TIMEOUT = datetime.timedelta(minutes=10)
_POLL_SECONDS = 0.01
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits on the time and memory of the code in a block, and the texts to print if one is exceeded.

    Attributes:
        job: name of the command.
        timeout: longest time; None for no limit.
        memory: most memory of this process, in bytes; None for no limit.
        memory_text: start of the message for too little memory; the sizes follow.
        time_text: start of the message for too little time; the time limit follows.
        hint: advice for the user in both cases.
    """

    job: str
    timeout: datetime.timedelta | None
    memory: int | None
    memory_text: str
    time_text: str
    hint: str


def time_and_memory_limits(job: str, condition: str | None) -> QueryLimits:
    """Return the limits for evaluating a `--where` condition the first time; no limits without a condition."""
    return QueryLimits(
        job,
        None if condition is None else TIMEOUT,
        None if condition is None else default_memory_limit(),
        "--where needs more than half of the memory that this process may have",
        "--where takes longer than it may",
        "select by time, topic or key as well, or write a simpler condition",
    )


@contextmanager
def enforce_limits(limits: QueryLimits) -> Iterator[None]:
    """End this process if the code in the block exceeds a limit."""
    if not runs_in_own_process() or not (limits.timeout or limits.memory):
        yield
        return
    # The engine puts what does not fit into its memory into files, and would not delete them.
    folder, before = tempfile.mkdtemp(prefix="commitlake-query-"), os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch_limits, args=(is_over, limits, folder), name="limits", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def _watch_limits(block_ended: threading.Event, limits: QueryLimits, temporary_folder: str) -> None:
    """End the process if it exceeds a limit before `block_ended` is set; runs in a thread."""
    started = time.monotonic()
    while not block_ended.wait(_POLL_SECONDS):
        reached = ""
        if limits.memory and (used := _used_memory()) > limits.memory:
            reached = f"{limits.memory_text}: {size_text(used)} of {size_text(limits.memory)}"
        elif limits.timeout and time.monotonic() - started > limits.timeout.total_seconds():
            reached = f"{limits.time_text}, {duration_text(limits.timeout)}"
        if reached and not block_ended.is_set():
            shutil.rmtree(temporary_folder, ignore_errors=True)
            exit_immediately(f"commitlake {limits.job}: error: {reached}\n  {limits.hint}\n", ExitCode.REFUSED)


def default_memory_limit() -> int:
    """Return the default memory limit: half of the memory that this process may use."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # there is no such group, or it has no limit
            found = min(found, int(Path(place).read_text(encoding="ascii")))
    return found // 2


def _used_memory() -> int:
    """Return the memory of this process in bytes."""
    try:
        with Path("/proc/self/statm").open("rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not on Linux: macOS tells the largest size so far, in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
