"""Process of a command: its standard streams, signal handling, and termination.

A command's `main` calls `run_process` before it imports anything slow. From then on:

    SIGINT, SIGTERM, SIGHUP   one line on standard error, no process left, exit code 128 + the signal's number
    the same, a second time   the same, at once
    standard output closed    no line, exit code 141, like a program that SIGPIPE ends
    standard output full      one line, exit code 1
    standard error closed     its output is dropped, and the job continues

The first signal prints the line, silences standard error, sends SIGTERM to all processes below this one (a JVM, a pool,
Spark's workers), and raises KeyboardInterrupt in the main thread, so that files and locks are released. Processes that
have not ended after `GRACE_SECONDS` are killed. All jobs tolerate being killed at any point, so their data needs no
further care.

A service that can stop cleanly, such as `archive --follow`, handles the first signal itself with
`call_on_first_signal`. A signal that was ignored when the process started (nohup, a shell's background job) stays
ignored.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 8.0
"""Seconds from the first signal until remaining processes are killed. Docker waits 10 s before it kills."""
OUTPUT_CLOSED = 128 + signal.SIGPIPE
_FAILED = 1
_MAIN_THREAD_SECONDS = 0.3  # for the main thread to handle a signal, which it cannot do while compiled code runs
_POLL_SECONDS = 0.02
_LINE_SECONDS = 0.5
_PR_SET_CHILD_SUBREAPER = 36
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_NUMBA_WITHOUT_COLOURS = "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"
"""Disables a feature of numba that prints an escape sequence at exit if colorama is installed."""


class OutputError(Exception):
    """Error for standard output that cannot be written."""


class OutputClosedError(OutputError):
    """Error for standard output that its reader has closed."""


class _ProcessState:
    """State of this process: the signals that it has received, and whether it is ending.

    Attributes:
        name: name of the command, for the line that reports a signal.
        number: number of the signal that ends the process, or None.
        deadline: time at which all remaining processes are killed.
        seen: number of signals that have arrived.
        taken: number of signals that have been handled.
        stop: function to call for the first signal instead of ending the process; None without one.
        asked: number of the signal for which `stop` was called, or None.
        is_raised: whether KeyboardInterrupt was raised in the main thread.
        is_over: whether the command has finished, and the interpreter is ending.
        is_ending: whether a thread is ending the process.
        begun: lock that is taken when a signal starts to end the process, so that this happens only once.
    """

    def __init__(self) -> None:
        self.name = "commitlake"
        self.number: int | None = None
        self.deadline = 0.0
        self.seen = 0
        self.taken = 0
        self.stop: Callable[[], None] | None = None
        self.asked: int | None = None
        self.is_raised = False
        self.is_over = False
        self.is_ending = False
        self.begun = threading.Lock()


_state = _ProcessState()


def run_process(command: Callable[[], int]) -> int:
    """Run a command as the main command of this process, and end the process with its exit code.

    It returns the exit code instead if a debugger, a profiler or an interactive interpreter needs the process longer.

    Args:
        command: returns an exit code, or raises SystemExit.
    """
    _prepare_streams()
    try:
        _install_signal_handlers()
        # No command does linear algebra, and its threads spin as soon as numpy or scipy is loaded.
        os.environ.setdefault(_BLAS_THREADS, "1")
        os.environ.setdefault(_NUMBA_WITHOUT_COLOURS, "1")
        code = _run_command(command)
        if _state.number is not None:
            _terminate_with_descendants(_state.number)
        _state.is_over = True
        _exit_without_finalization(code)
    except KeyboardInterrupt:
        _start_termination(_state.number or signal.SIGINT)
        _terminate_with_descendants(_state.number or signal.SIGINT)
    return code


def set_command_name(name: str) -> None:
    """Set the command's name for the line that reports a signal."""
    _state.name = name


def received_stop_signal() -> int | None:
    """Return the number of the signal that asked this process to end, or None."""
    return _state.asked if _state.number is None else _state.number


@contextmanager
def call_on_first_signal(stop_function: Callable[[], None]) -> Iterator[None]:
    """While the block runs, let the first signal call a function instead of ending the process; a second one ends it.

    Args:
        stop_function: requests that the work stop. It may be called in any thread.
    """
    before = (
        {} if runs_in_own_process() else {number: signal.signal(number, _handle_signal) for number in ENDING_SIGNALS}
    )
    _state.stop = stop_function
    try:
        yield
    finally:
        _state.stop = None
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_command(command: Callable[[], int]) -> int:
    try:
        try:
            code = command()
        except SystemExit as error:
            code = _exit_code_of(error)
        _flush_streams()
    except OutputClosedError:
        code = OUTPUT_CLOSED
    except OutputError as error:
        print(f"{_state.name}: error: {error}", file=sys.stderr)
        code = _FAILED
    except Exception:
        if _state.number is None:
            raise
        code = _FAILED  # errors caused by the signal are not printed
    else:
        return code
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 (the interpreter flushes once more at its end)
        os.dup2(nowhere.fileno(), 1)
    return code


def _exit_code_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return _FAILED


# --- standard streams ---


class _StandardOutput(io.FileIO):
    """Standard output stream that raises distinct errors, so that they are not taken for errors of files or sockets."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed: int
        try:
            return super().write(data)
        except BrokenPipeError:
            raise OutputClosedError from None
        except OSError as error:
            raise OutputError(f"standard output cannot be written: {error.strerror}") from None


class _StandardError(io.FileIO):
    """Standard error stream that discards text if it cannot be written."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed: int
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _prepare_streams() -> None:
    """Make sure that file descriptors 0 to 2 are the standard streams, and detect errors of standard output."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # A write to a closed standard output must fail, so the next opened file must not get its descriptor.
            os.set_inheritable(os.open(os.devnull, flags), True)
    sys.stdout = _wrap_text_stream(sys.stdout, _StandardOutput(1, "wb", closefd=False))
    sys.stderr = _wrap_text_stream(sys.stderr, _StandardError(2, "wb", closefd=False))


def _wrap_text_stream(stream: TextIO | None, raw: io.FileIO) -> TextIO:
    """Return a text stream on top of a raw one, with the settings of the interpreter's own stream."""
    buffer = io.BufferedWriter(raw)
    if not isinstance(stream, io.TextIOWrapper):
        return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    stream.flush()
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        # With PYTHONUNBUFFERED, the interpreter writes at once: lines must not wait in the buffer here.
        line_buffering=stream.line_buffering or stream.write_through,
        write_through=stream.write_through,
    )


def _flush_streams() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


# --- signals ---


def _install_signal_handlers() -> None:
    read_end, write_end = os.pipe()
    # A full pipe must not block the handler; that a signal has come is then known already.
    os.set_blocking(write_end, False)
    # Python calls a handler in the main thread, between two bytecodes. The pipe tells the thread below at once, even
    # while compiled code runs.
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch_for_signals, args=(read_end,), name="signals", daemon=True).start()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle_signal)
    # The parent process may have blocked signals while the interpreter starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)


def runs_in_own_process() -> bool:
    """Return True if this process runs only the command of `run_process`, and `call_on_first_signal` is not active."""
    return any(signal.getsignal(number) is _handle_signal for number in ENDING_SIGNALS)


def _handle_signal(signal_number: int, _frame: object) -> None:
    """Handle a signal; Python calls this in the main thread."""
    _state.taken += 1
    if _state.is_over:
        _start_termination(signal_number)
        _terminate_with_descendants(signal_number)
    if _call_stop_function(signal_number):
        return
    _start_termination(signal_number)
    if not _state.is_raised:
        _state.is_raised = True
        raise KeyboardInterrupt


def _call_stop_function(signal_number: int) -> bool:
    """Call the stop function of a running service; return False if there is none or it was called before."""
    stop, _state.stop = _state.stop, None
    if stop is None:
        return False
    _state.asked = signal_number
    stop()
    _print_last_line(f"{_state.name}: stopping; a second signal ends it at once\n", silences_stderr=False)
    return True


def _watch_for_signals(signal_pipe: int) -> None:
    """Handle signals in a thread if the main thread is too busy to do so."""
    while True:
        left = None if _state.number is None else max(0.0, _state.deadline - time.monotonic())
        if not select.select([signal_pipe], [], [], left)[0]:
            _terminate_with_descendants(_state.number or signal.SIGTERM, kills_at_once=True)
        numbers = [number for number in os.read(signal_pipe, 64) if number in ENDING_SIGNALS]
        if not numbers:
            continue
        _state.seen += len(numbers)
        # The signal that asked a service to stop cleanly does not count as the first one.
        if _state.seen - (_state.asked is not None) > 1:
            _start_termination(numbers[0])
            _terminate_with_descendants(numbers[0], kills_at_once=True)
        time.sleep(_MAIN_THREAD_SECONDS)
        if _state.taken < _state.seen:
            _state.taken = _state.seen
            if not _call_stop_function(numbers[0]):
                _start_termination(numbers[0])


def exit_immediately(message: str, exit_code: int) -> NoReturn:
    """Print a message on standard error, and kill this process and its descendants, for example after a timeout.

    What the main thread has not written so far is lost.
    """
    _print_last_line(message, silences_stderr=True)
    for process in list_descendant_ids():
        _send_signal(process, signal.SIGKILL)
    os._exit(exit_code)


def _start_termination(signal_number: int) -> None:
    """Print the line about a signal, and ask all child processes to end; later calls do nothing."""
    # Both threads may come here. A signal handler must never wait for a lock.
    if not _state.begun.acquire(blocking=False):
        return
    _state.deadline = time.monotonic() + GRACE_SECONDS
    _state.number = signal_number
    what = "interrupted" if signal_number == signal.SIGINT else f"ended by {signal.Signals(signal_number).name}"
    _print_last_line(f"{_state.name}: {what}\n", silences_stderr=True)
    # Before the processes are listed: a process whose parent ends would otherwise belong to init, and not be found.
    _adopt_orphans()
    for process in list_descendant_ids():
        _send_signal(process, signal.SIGTERM)


def _print_last_line(line: str, *, silences_stderr: bool) -> None:
    """Print a line on standard error, and nothing after it if `silences_stderr` is set."""
    with suppress(OSError):
        own = os.dup(2)
        try:
            if silences_stderr:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 2)
                os.close(nowhere)
            if os.isatty(own):  # show the cursor, which a progress bar hides
                line = f"\r\x1b[K\x1b[?25h{line}"
            # Standard error may be a pipe that nobody reads.
            if select.select([], [own], [], _LINE_SECONDS)[1]:
                os.write(own, line.encode())
        finally:
            os.close(own)


# --- the end ---


def _exit_without_finalization(exit_code: int) -> None:
    """End this process without finalizing the interpreter, which threads of Arrow or Delta could make crash.

    If such a thread is still closing a file, it needs the interpreter's lock. An interpreter that is ending stops the
    thread instead, and C++ then calls abort: "terminate called without an active exception". This also saves time.
    """
    if sys.gettrace() is not None or sys.getprofile() is not None or sys.flags.interactive:
        return
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (waits for threads, as the interpreter does)
    atexit._run_exitfuncs()  # noqa: SLF001
    with suppress(Exception):
        _flush_streams()
    os._exit(exit_code or 0)


def _terminate_with_descendants(signal_number: int, *, kills_at_once: bool = False) -> NoReturn:
    """End this process, with the exit code for a signal, and all its descendants.

    Args:
        signal_number: number of the signal.
        kills_at_once: kill child processes without waiting.
    """
    while _state.is_ending and not kills_at_once:  # another thread is ending the process
        time.sleep(_POLL_SECONDS)
    _state.is_ending = True
    while not kills_at_once and time.monotonic() < _state.deadline and _spark_process_ids():
        _reap_children()
        time.sleep(_POLL_SECONDS)
    _release_semaphores()
    deadline = time.monotonic() + 1
    while (left := list_descendant_ids()) and time.monotonic() < deadline:
        for process in left:
            _send_signal(process, signal.SIGKILL)
        _reap_children()
        time.sleep(_POLL_SECONDS)
    os._exit(128 + signal_number)


def _spark_process_ids() -> list[int]:
    """Return the ids of Spark's JVM and its children, which must be asked to end so that they delete their files."""
    own = os.getsid(0)
    found = []
    for process in list_descendant_ids():
        with suppress(OSError):
            if os.getsid(process) != own:
                found.append(process)
    return found


def _release_semaphores() -> None:
    """Let multiprocessing delete its semaphores, because it prints a warning about leftover ones at exit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        with suppress(Exception):
            util._run_finalizers(0)  # noqa: SLF001 (its own exit function does this, and waits for the pool as well)


def _adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and ended."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _reap_children() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _send_signal(process_id: int, signal_number: int) -> None:
    with suppress(OSError):
        os.kill(process_id, signal_number)


def list_descendant_ids(ancestor: int | None = None) -> list[int]:
    """Return the ids of the running descendants of a process, by default of this one."""
    children: dict[int, list[int]] = {}
    for process, parent in _list_process_and_parent_ids():
        children.setdefault(parent, []).append(process)
    found: list[int] = []
    waiting = [os.getpid() if ancestor is None else ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _list_process_and_parent_ids() -> Iterator[tuple[int, int]]:
    """Yield the id of each running process and of its parent."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112 (pathlib is slow to import)
        yield from _list_processes_from_ps()
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 (likewise)
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 (likewise)
                # pid (name) state parent …; the name may contain any characters.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    yield int(name), int(parent)


def _list_processes_from_ps() -> Iterator[tuple[int, int]]:
    import subprocess

    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, check=False)
    for line in listed.stdout.splitlines():
        process, parent, state = line.split()[:3]
        if not state.startswith(b"Z"):
            yield int(process), int(parent)
