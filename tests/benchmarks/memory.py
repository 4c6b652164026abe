"""Memory of Spark's Python workers, observed by another process.

`RssAnon` is a worker's own anonymous memory, which is sampled. `VmHWM` is the peak counted by the kernel: it misses
nothing, but includes shared libraries and mapped segments, which the kernel can reclaim at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_SECONDS = 0.05
_FORGET_PEAK = "5"  # see proc(5), clear_refs


class WorkerMemory:
    """Largest memory of any Python process below a process; a context manager.

    Attributes:
        anonymous_mib: largest sample of a process's own memory.
        peak_mib: largest peak of a process's resident memory.
        workers: largest number of processes at a time.
    """

    def __init__(self, ancestor: int) -> None:
        """Prepare the measurement.

        Args:
            ancestor: process id of the session's JVM.
        """
        self._ancestor = ancestor
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._sample_until_end, daemon=True)
        self.anonymous_mib = 0.0
        self.peak_mib = 0.0
        self.workers = 0

    def __enter__(self) -> Self:
        for process in python_descendants(self._ancestor):
            try:
                (process / "clear_refs").write_text(_FORGET_PEAK)
            except OSError:
                continue  # it has ended
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watch.join()

    def _sample_until_end(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            sizes = [memory_mib(process) for process in python_descendants(self._ancestor)]
            self.workers = max(self.workers, len(sizes))
            self.anonymous_mib = max([self.anonymous_mib, *(anonymous for anonymous, _ in sizes)])
            self.peak_mib = max([self.peak_mib, *(peak for _, peak in sizes)])


def python_descendants(ancestor: int) -> Iterator[Path]:
    """Yield the folders in /proc of all Python processes below a process."""
    for child in _children(ancestor):
        process = Path(f"/proc/{child}")
        try:
            is_python = (process / "comm").read_text().startswith(("python", "pyspark"))
        except OSError:
            continue
        if is_python:
            yield process
        yield from python_descendants(child)


def _children(process: int) -> list[int]:
    children: list[int] = []
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []
    for task in tasks:  # a child belongs to the thread that has started it
        try:
            children += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return children


def memory_mib(process: Path) -> tuple[float, float]:
    """Return RssAnon and VmHWM of a process; zeros if it has ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    values = {name: int(value.split()[0]) / 1024 for name, _, value in (line.partition(":") for line in lines)
              if name in ("RssAnon", "VmHWM")}  # fmt: skip
    return values.get("RssAnon", 0.0), values.get("VmHWM", 0.0)
