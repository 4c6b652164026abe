"""Limits on the time and the memory of a query that a user has written in SQL.

`repeat('a', 2000000000)` needs gigabytes, and a recursive WITH may have no end. The engine, which is compiled, can
neither be interrupted nor limited in all its functions. So a thread watches this process, and ends it with exit code 4
as soon as it exceeds a limit. A process that does not belong to the command alone, such as a notebook, has no limits.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from commitlake.connectors.lake.sql import Engine
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.cli.process import end_at_once, is_own_process
from commitlake.jobs.cli.sizes import size_text
from commitlake.schemas.errors import ExitCode

TIMEOUT = datetime.timedelta(minutes=10)
_POLL_SECONDS = 0.01
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_limits(arguments: argparse.Namespace) -> None:
    """Refuse limits for a query that runs elsewhere.

    Raises:
        JobError: for such a limit.
    """
    for name in ("timeout", "memory"):
        if getattr(arguments, name) is not None and (arguments.engine == Engine.SPARK or arguments.via == "hbase"):
            raise JobError(
                f"--{name} limits a query in this process", "leave out --spark and --via hbase, or the limit"
            )


@contextmanager
def limited(arguments: argparse.Namespace) -> Iterator[None]:
    """End this process if what runs in the context exceeds a limit.

    Args:
        arguments: parsed arguments of the command. Without --sql and --where there are only the limits that are given.
    """
    is_free = arguments.sql is None and arguments.where is None
    timeout: datetime.timedelta | None = arguments.timeout
    if timeout is None and not is_free:
        timeout = TIMEOUT
    memory: int | None = arguments.memory
    if memory is None and not is_free:
        memory = default_memory()
    is_elsewhere = arguments.engine == Engine.SPARK or arguments.via == "hbase"
    if is_elsewhere or not is_own_process() or not (timeout or memory):
        yield
        return
    # The engine puts what does not fit into its memory into files, and would not delete them.
    folder, before = tempfile.mkdtemp(prefix="commitlake-query-"), os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(is_over, timeout, memory, folder), name="limits", daemon=True)
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


def _watch(is_over: threading.Event, timeout: datetime.timedelta | None, memory: int | None, folder: str) -> None:
    """End the process when it exceeds a limit."""
    started = time.monotonic()
    while not is_over.wait(_POLL_SECONDS):
        reached = ""
        if memory and (used := _used_memory()) > memory:
            reached = f"the query needs more memory than --memory allows: {size_text(used)} of {size_text(memory)}"
        elif timeout and time.monotonic() - started > timeout.total_seconds():
            reached = f"the query takes longer than --timeout allows, {duration_text(timeout)}"
        if reached and not is_over.is_set():
            shutil.rmtree(folder, ignore_errors=True)
            hint = "ask for less, for example with a condition on store_date; or raise the limit; or use --spark"
            end_at_once(f"commitlake query: error: {reached}\n  {hint}\n", ExitCode.REFUSED)


def default_memory() -> int:
    """Return half of the memory that this process may have."""
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
