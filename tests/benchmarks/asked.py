"""A process that makes a pass for each line that it is given, and answers with a line of JSON.

It is kept between passes, so that what it has compiled, mapped and learnt stays, and waits without using the machine.
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
    """The process ended instead of answering; the message holds what it printed to standard error."""


class AskedProcess:
    """A process that answers requests, for a `with`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it.

        Args:
            command: its program and arguments.
            environment: all of its environment, else ours.
        """
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, env=environment
        )

    def ask(self, name: str) -> Run:
        """Let it make one pass.

        Raises:
            AskedProcessError: if there is no answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: there is no answer, either
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                return Run(answer["seconds"], answer["bytes"], answer["messages"])
        self._said.seek(0)
        raise AskedProcessError(f"{self._process.args!r} ended when asked for {name!r}: {self._said.read()[-4000:]}")

    def asking(self, name: str) -> Step:
        """The pass as a step; see `ask`."""
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
