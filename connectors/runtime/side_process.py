"""A process beside this one that begins early with what takes long, and answers calls one after the other."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any, NoReturn, ParamSpec, TypeVar

from commitlake.connectors.runtime.fork_server import end_with_parent, start_fork_server
from commitlake.schemas.errors import CommitLakeError

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class SideProcessError(CommitLakeError):
    """The process has ended before it had answered: somebody, or the system for want of memory, has killed it."""


class SideProcess:
    """A process that ends with this one, or when it is closed.

    Args:
        prepare: what it does first; a function of a module's top level.
    """

    def __init__(self, prepare: Callable[[], object]) -> None:
        start_fork_server()
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare), daemon=True)
        self._process.start()
        theirs.close()

    def call(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Call a function there, and wait for its result.

        Args:
            function: of a module's top level.
            arguments: its arguments; they and the result are pickled.
            named: likewise.

        Raises:
            Exception: what the function raises, as itself.
            SideProcessError: if the process has ended.
        """
        try:
            self._connection.send((function, arguments, named))
            is_result, value = self._connection.recv()
        except (EOFError, OSError):
            raise SideProcessError(
                "a process of this command was killed, perhaps for want of memory; run it again"
            ) from None
        if not is_result:
            raise value
        result: Result = value
        return result

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._connection.close()
        self._process.terminate()
        self._process.join()
        self._process.close()


def _serve(connection: Connection[Any, Any], prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGTERM, _end)
    end_with_parent()
    gc.disable()  # of what is loaded nothing is garbage
    prepare()
    gc.freeze()
    gc.enable()
    while True:
        try:
            function, arguments, named = connection.recv()
        except EOFError:
            _end()
        try:
            answer = True, function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 (it is raised where the function was called)
            answer = False, error
        connection.send(answer)


def _end(*_: object) -> NoReturn:
    """End this process at once, and let multiprocessing delete its semaphores, of which it warns else."""
    # `close` ends the connection and sends SIGTERM: the second of these must not stop what the first has begun.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Its own exit function does this, after all else that takes time at the end.
    util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001
    os._exit(0)
