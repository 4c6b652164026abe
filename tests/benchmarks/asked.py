"""A process that runs a pass for each line of input, and answers with a line of JSON.

The process is reused between passes, so compiled code, mappings and caches stay warm. It uses no processor time while
it waits.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.benchmarks.runs import Run, Step


class AskedProcessError(Exception):
    """Error for a process that ended without an answer; the message contains its standard error."""


class AskedProcess:
    """A process that answers requests; a context manager."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the process.

        Args:
            command: its program and arguments.
            environment: its whole environment; by default that of this process.
        """
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, env=environment
        )

    def ask(self, name: str) -> Run:
        """Run one pass, and return its measurements.

        Raises:
            AskedProcessError: if there is no answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended, so there is no answer
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                return Run(answer["seconds"], answer["bytes"], answer["messages"])
        self._said.seek(0)
        raise AskedProcessError(f"{self._process.args!r} ended when asked for {name!r}: {self._said.read()[-4000:]}")

    def asking(self, name: str) -> Step:
        """Return the pass as a step; see `ask`."""
        return lambda: self.ask(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._said.close()
