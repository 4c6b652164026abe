"""Archive runs in separate processes (`tests.integration.killed.child`), which tests start on command and kill."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path

from tests.support.process_trees import kill_tree

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180
AHEAD = 3  # processes that start while another runs


def launch(where: str, store: Path | str, lake: Path, step: str | None = None) -> subprocess.Popen[str]:
    """Start a process that prepares to archive, in its own process group; see `child` for the store."""
    arguments = [where, str(store), str(lake), *([step] if step else [])]
    command = [sys.executable, "-m", "tests.integration.killed.child", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@contextmanager
def ready(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Yield the process once it is about to archive, and kill it and its children at the end."""
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", f"expected a run that begins, found {line!r}"
            yield process
        finally:
            kill(process)


def archive_process(
    where: str, store: Path | str, lake: Path, step: str | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a process that is about to archive."""
    return ready(launch(where, store, lake, step))


@contextmanager
def launched_ahead(
    where: str, store: Path | str, lake: Path, steps: Iterable[str | None]
) -> Iterator[Iterator[subprocess.Popen[str]]]:
    """Start a process for each step in advance, because nearly all of their time is spent starting."""
    waiting: deque[subprocess.Popen[str]] = deque()
    coming = iter(steps)

    def processes() -> Iterator[subprocess.Popen[str]]:
        while True:
            waiting.extend(launch(where, store, lake, step) for step in islice(coming, AHEAD - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft()

    try:
        yield processes()
    finally:
        for process in waiting:
            with process:
                kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and everything that it started."""
    kill_tree(process.pid)
    process.wait(PATIENCE_SECONDS)


def begin(process: subprocess.Popen[str]) -> None:
    """Let a process continue."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def archive(where: str, store: Path | str, lake: Path, step: str | None = None) -> float:
    """Run an archive without interruption, and return the seconds it took."""
    with archive_process(where, store, lake, step) as process:
        begin(process)
        assert process.stdout is not None
        word, _, seconds = process.stdout.readline().partition(" ")
        assert word == "done", process.stderr.read() if process.stderr else ""
        return float(seconds)
