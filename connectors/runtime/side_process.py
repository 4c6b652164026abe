"""Helper process that begins slow preparations early, and then executes calls one by one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any, NoReturn, ParamSpec, TypeVar

from commitlake.connectors.runtime.fork_server import prepare_child_process, start_fork_server
from commitlake.schemas.errors import CommitLakeError, ExitCode

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class SideProcess:
    """Helper process that executes calls; it exits with this process, or when it is closed.

    Args:
        prepare: function that it runs first; at a module's top level.
    """

    def __init__(self, prepare: Callable[[], object]) -> None:
        start_fork_server(prepare)
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve_calls, args=(theirs, prepare), daemon=True)
        self._process.start()
        # With a copy of this end here, `recv` would not notice that the process has died.
        theirs.close()

    def call(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Call a function in the process, and wait for its result.

        Args:
            function: function at a module's top level.
            arguments: positional arguments; they and the result are pickled.
            named: keyword arguments.

        Raises:
            Exception: any exception of the function.
            CommitLakeError: if the process has exited.
        """
        try:
            self._connection.send((function, arguments, named))
            is_result, value = self._connection.recv()
        except (EOFError, OSError):
            raise CommitLakeError(
                "a process of this command was killed, perhaps because memory ran out; run the command again",
                exit_code=ExitCode.FAILED,
            ) from None
        if not is_result:
            raise value
        result: Result = value
        return result

    def close(self) -> None:
        """Terminate the process, even during a call."""
        self._connection.close()
        self._process.terminate()
        self._process.join()
        self._process.close()


def _serve_calls(connection: Connection[Any, Any], prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGTERM, _exit_process_at_once)
    prepare_child_process()
    gc.disable()  # nothing is garbage while modules load
    prepare()
    # The loaded modules are never garbage, so later collections need not look at them.
    gc.freeze()
    gc.enable()
    while True:
        try:
            function, arguments, named = connection.recv()
        except EOFError:
            _exit_process_at_once()
        try:
            answer = True, function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 (it is raised by `call`)
            answer = False, error
        connection.send(answer)


def _exit_process_at_once(*_: object) -> NoReturn:
    """Exit this process without cleanup, except for multiprocessing's semaphores, to avoid a warning."""
    # `close` closes the connection and sends SIGTERM; the signal must not interrupt the exit.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # multiprocessing's own exit function does this, after other slow work.
    util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001
    os._exit(0)
