"""Server process of multiprocessing that starts processes, because forking this process would break its threads."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for

from commitlake.schemas.errors import UsageError

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of a Python that is started with `-c` or `-m`: it imports nothing from the current folder, which may be
one that others can write to."""
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (mkdtemp makes a folder there that nobody else may open)
_MAX_FOLDER_BYTES = 107 - len("/pymp-abcdefgh/listener-abcdefgh")
"""Bytes of a folder's path in which the server can listen: the path of a socket has at most 107."""


def start_fork_server(preload_function: Callable[..., object] | None = None) -> None:
    """Start the fork server with SIGINT blocked, also for its children, so that only this process handles Ctrl-C.

    Args:
        preload_function: a function that its processes will call. A server that is not running yet imports the
            function's module before it starts them, so that they need not do so, each by itself.

    Raises:
        UsageError: if there is no folder for its socket.
    """
    _choose_temporary_folder()
    module = getattr(preload_function, "__module__", None)
    # The server imports the module once, and each process begins with a copy of it.
    if isinstance(module, str) and module != "__main__":
        forkserver.set_forkserver_preload([module])
    with _set_safe_path():
        resource_tracker.ensure_running()  # it would unblock blocked signals, so start it first
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _set_safe_path() -> Iterator[None]:
    """Set the environment variables in `SAFE_PATH`, inside the block, for the processes that are started there."""
    before = {name: os.environ.get(name) for name in SAFE_PATH}
    os.environ.update(SAFE_PATH)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _choose_temporary_folder() -> None:
    """Choose another temporary folder if the path of the present one is too long for the fork server's socket."""
    given = tempfile.gettempdir()
    if len(os.fsencode(given)) <= _MAX_FOLDER_BYTES:
        return
    short = next((folder for folder in _SHORT_FOLDERS if os.access(folder, os.W_OK | os.X_OK)), None)
    if short is None:
        raise UsageError(
            f"the path of the temporary folder {given} has {len(os.fsencode(given))} bytes, expected at most "
            f"{_MAX_FOLDER_BYTES}, and none of {', '.join(_SHORT_FOLDERS)} can be written. Set TMPDIR to a folder with "
            "a shorter path"
        )
    tempfile.tempdir = short
    try:
        multiprocessing.util.get_temp_dir()  # creates the folder, once
    finally:
        tempfile.tempdir = given


def prepare_child_process() -> None:
    """Prepare this process, which the fork server has started, for running tasks.

    It exits if its parent is killed; otherwise it would wait for tasks forever.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None  # only called in processes started by multiprocessing
    threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()


def _exit_with_parent(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
