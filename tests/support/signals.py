"""Commands that receive signals; a mark in their environment identifies all their descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from commitlake.jobs.cli.process import list_descendant_ids
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 240
_MARK = "COMMITLAKE_TEST_MARK"
_SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


class MarkedProcess:
    """A process in its own group, whose descendants can be found even after their parents have ended."""

    def __init__(self, arguments: Sequence[str], *, stdout: int | None = subprocess.DEVNULL) -> None:
        """Start the process.

        Args:
            arguments: arguments of this Python.
            stdout: standard output of the process.
        """
        self._mark = f"{_MARK}={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, name: value},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until the process has done something.

        Args:
            holds: function that returns whether it has happened.
        """

        def happened() -> bool:
            has_ended = self.process.poll() is not None
            if holds():
                return True
            assert not has_ended, self.error()
            return False

        wait_until(happened, PATIENCE_SECONDS, look_seconds=0.005)

    def wait_for_handler(self) -> None:
        """Wait until it handles SIGTERM; what happens earlier is not up to this project."""
        self.wait_until(self._handles_sigterm)

    def child_count(self) -> int:
        """Return the number of its descendants."""
        return len(list_descendant_ids(self.process.pid))

    def error(self) -> str:
        """Return its standard error, after it has ended."""
        assert self.process.stderr is not None
        self.process.wait(PATIENCE_SECONDS)
        return self.process.stderr.read()

    def left(self) -> list[str]:
        """Kill the processes that it has left, and return their command lines."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue  # of another user, or ended
        return found

    def _handles_sigterm(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) & _SIGTERM_BIT)


def line_for(command: str, number: signal.Signals) -> str:
    """Return the line that a command prints when a signal ends it."""
    return f"{command}: {'interrupted' if number == signal.SIGINT else f'ended by {number.name}'}\n"
