"""Start and stop of the JVM for a job's Spark session, through spark-submit, with filtered error output.

spark-submit receives the options in `PYSPARK_SUBMIT_ARGS`. Settings are put before the user's options, which take
precedence.

The JVM is started here, and pyspark only connects to it, because pyspark's `launch_gateway` returns no process before
the JVM answers, so that an interrupted job would leave a JVM running. The JVM has its own session, so that Ctrl-C
reaches only the job, and exits when the job is gone: its standard input is a pipe from here.

On a cluster, executors get this package and what it needs as an archive, unless the user has chosen a Python for them;
see `worker_environment`.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from commitlake.connectors.printable import escape_unprintable
from commitlake.connectors.runtime.fork_server import SAFE_PATH
from commitlake.connectors.spark import submit_arguments, worker_environment
from commitlake.connectors.spark.java import JavaError, java_home
from commitlake.connectors.spark.spark_defaults import configuration_folder, drop_default_settings, read_defaults
from commitlake.connectors.spark.yarn import SETTINGS as YARN_SETTINGS
from commitlake.connectors.spark.yarn import check_yarn_configuration

# Every JVM prints this for the module, which Spark always requests.
_WARNINGS = ("WARNING: Using incubator modules", "WARNING: package sun.security.action")
_TRACEBACK = "Traceback (most recent call last):"
_BROKEN_PIPE = "BrokenPipeError:"
_DAEMON = "/pyspark/daemon.py"


def filter_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of error output, except harmless messages; the lines of a traceback are yielded once it ends.

    A Python worker that looks up data sources, or plans a read, sends one more number after its answer. The JVM does
    not wait for it, and on a busy machine may have closed the pipe: the worker then prints a traceback, although
    nothing is lost.
    """
    traceback: list[str] = []
    for line in lines:
        if line.startswith(_TRACEBACK) or (traceback and line[:1].isspace()):
            traceback.append(line)
            continue
        if not (traceback and line.startswith(_BROKEN_PIPE) and _is_from_daemon(traceback)):
            yield from traceback
            if not line.startswith(_WARNINGS):
                yield line
        traceback = []
    yield from traceback


def _is_from_daemon(traceback: list[str]) -> bool:
    frames = [line for line in traceback if line.lstrip().startswith('File "')]
    return bool(frames) and all(_DAEMON in frame for frame in frames)


_PYTHON = "PYSPARK_PYTHON"
_STANDARD_ERROR = 2
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # file in which the JVM writes its port
_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5
_END_SECONDS = 60


class JvmLaunch(NamedTuple):
    """Arguments of spark-submit with which to start a JVM, and the JVM's working folder.

    Attributes:
        words: the arguments.
        folder: working folder of the JVM; None for that of this process.
    """

    words: list[str]
    folder: Path | None


def launch_jvm(settings: Mapping[str, str]) -> JavaGateway:
    """Start a JVM for a Spark session with these settings.

    Args:
        settings: settings of Spark, unless the user or the installation's `spark-defaults.conf` has set them.

    Raises:
        JavaError: if there is no Java, or the JVM exits at once.
        UsageError: if the master is YARN, and its configuration is not found.
    """
    gateway = start_jvm(*prepare_launch(settings))
    if submit_arguments.uses_cluster() or os.getpid() == 1:
        atexit.register(end_session, gateway.proc)
    return gateway


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Stop the session of a JVM, and wait until the JVM has exited.

    Otherwise the JVM does both on its own after this process has ended. In a container, where everything ends with the
    first process, it would be killed before it is done: executors and their settings would stay in the cluster, and
    event logs would be incomplete.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001 (no other way to ask)
    if context is not None:
        with suppress(Exception):  # of a JVM that has ended
            context.stop()
    assert process.stdin is not None  # `_start_process` requests a pipe
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


def prepare_launch(settings: Mapping[str, str], *, includes_driver: bool = False) -> JvmLaunch:
    """Return the arguments for a JVM; on a cluster, with the archive for executors.

    Args:
        settings: as for `launch_jvm`.
        includes_driver: whether the cluster also runs the driver.

    Raises:
        JavaError: if there is no Java, or the archive cannot be made.
        UsageError: if the master is YARN, and its configuration is not found.
    """
    configuration = configuration_folder()
    defaults = read_defaults(configuration)
    given = submit_arguments.read_user_arguments()
    if submit_arguments.is_yarn_master(given, defaults):
        check_yarn_configuration(configuration)
        settings = {**settings, **YARN_SETTINGS}
    words = submit_arguments.merge_arguments(drop_default_settings(settings, defaults), given)
    is_local = not submit_arguments.is_cluster_master(words, defaults)
    python = os.environ.get(_PYTHON) or {**defaults, **submit_arguments.parse_settings(words)}.get(
        "spark.pyspark.python"
    )
    folder = None
    if python is None and not is_local:
        words, python = _add_archive_arguments(words, defaults, includes_driver=includes_driver)
        folder = _make_driver_folder(python)
    elif python is not None and not is_local and _is_python_in_archive(python):
        words = submit_arguments.make_paths_absolute(words)
        folder = _make_driver_folder(python)
    _set_environment(configuration, python or sys.executable, is_local=is_local)
    return JvmLaunch(words, folder)


def start_jvm(arguments: Sequence[str], folder: Path | None = None) -> JavaGateway:
    """Start a JVM with these arguments of spark-submit, in a folder.

    Raises:
        JavaError: if the JVM exits at once.
    """
    errors = _FilteredErrors()
    try:
        with tempfile.TemporaryDirectory(prefix="commitlake-jvm-") as temporary:
            process = _start_process(arguments, Path(temporary) / "connection", errors.write_end, folder)
            try:
                return _connect_to_gateway(process, Path(temporary) / "connection")
            except BaseException:
                _stop_process(process)
                raise
    except _JvmEndedError:
        errors.close()
        raise JavaError(f"Spark did not start on the Java in {os.environ['JAVA_HOME']}: {errors.last_line()}") from None
    finally:
        errors.close()


def stop_jvm(gateway: JavaGateway) -> None:
    """Stop a JVM that runs no session."""
    gateway.shutdown()
    _stop_process(gateway.proc)


class _JvmEndedError(Exception):
    """Error for a JVM that has exited before this process could connect to it."""


def _start_process(
    arguments: Sequence[str], connection_file: Path, output_descriptor: int, folder: Path | None
) -> subprocess.Popen[bytes]:
    script = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return subprocess.Popen(
        [str(script), *arguments],
        # The JVM passes its environment on to Python workers.
        env={**os.environ, **SAFE_PATH, "SPARK_CONNECT_MODE": "0", _CONNECTION: str(connection_file)},
        stdin=subprocess.PIPE,
        stdout=output_descriptor,
        stderr=output_descriptor,
        start_new_session=True,
        cwd=folder,
    )


def _connect_to_gateway(process: subprocess.Popen[bytes], connection_file: Path) -> JavaGateway:
    """Wait until the JVM announces its port, and connect."""
    while not connection_file.exists():
        if process.poll() is not None:
            raise _JvmEndedError
        time.sleep(_POLL_SECONDS)
    with connection_file.open("rb") as file:
        port = read_int(file)  # type: ignore[no-untyped-call]
        secret = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    # With these variables, pyspark connects to the JVM instead of starting one.
    with _set_environment_variables({_GATEWAY_PORT: str(port), _GATEWAY_SECRET: secret}):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process  # as in pyspark; this also keeps the pipe open
    return gateway


@contextmanager
def _set_environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    """Stop the JVM and the processes that started it: a shell, and the JVM that builds the command line."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            break
    assert process.stdin is not None  # `_start_process` requests a pipe
    process.stdin.close()


def _add_archive_arguments(
    arguments: Sequence[str], defaults: Mapping[str, str], *, includes_driver: bool
) -> tuple[list[str], str]:
    """Add the archive for executors to spark-submit's arguments; return them and the Python in the archive.

    The JVM works in another folder then, so relative paths in the arguments are made absolute.
    """
    try:
        archive = worker_environment.executor_archive(includes_driver=includes_driver)
    except OSError as error:
        raise JavaError(
            f"cannot pack the Python environment for executors: {error}. Set PYSPARK_PYTHON to a Python that has "
            "commitlake on every executor, and nothing is packed"
        ) from None
    found = submit_arguments.make_paths_absolute(arguments)
    # Of several such options the last one counts, so ours repeats the user's archives.
    archives = [word for option, word in pairwise(found) if option == "--archives"]
    if not archives:
        configured = {**defaults, **submit_arguments.parse_settings(found)}.get("spark.archives")
        archives = [configured] if configured else []
    # Before the last word, which is the application: what follows that is for the application.
    found[-1:-1] = ["--archives", ",".join([*archives, f"{archive}#{worker_environment.NAME}"])]
    return found, worker_environment.PYTHON


def _is_python_in_archive(python: str) -> bool:
    """Return whether the executors' Python is in an archive that the user sends, as a relative path shows."""
    return "/" in python and not python.startswith("/")


def _make_driver_folder(python: str) -> Path:
    """Make a working folder for the driver's JVM, where the executors' relative path leads to this Python."""
    if ".." in Path(python).parts:
        raise JavaError(
            "PYSPARK_PYTHON or spark.pyspark.python: expected the executors' Python as an absolute path, or as one "
            f"below an executor's working folder, found {python}"
        )
    try:
        return worker_environment.driver_folder(python)
    except OSError as error:
        raise JavaError(f"cannot make a working folder for Spark's driver: {error}") from None


def _set_environment(configuration: Path | None, python: str, *, is_local: bool) -> None:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ[_PYTHON] = python
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # SPARK_HOME could name a Spark of another version than this pyspark; its settings apply all the same.
    os.environ.pop("SPARK_HOME", None)
    if configuration is not None:
        os.environ["SPARK_CONF_DIR"] = str(configuration)


class _FilteredErrors:
    """Filter between a child's standard error and ours, which drops harmless messages."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._last = "it gave no reason"
        self._reader = threading.Thread(target=self._forward_output, args=(read_end,), daemon=True)
        self._reader.start()

    def _forward_output(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="surrogateescape", newline="") as lines:
            for line in filter_noise(lines):
                self._last = line.strip() or self._last
                # Write to the file descriptor, as the child would, whatever sys.stderr is.
                shown = escape_unprintable(line) if os.isatty(_STANDARD_ERROR) else line
                os.write(_STANDARD_ERROR, shown.encode(errors="surrogateescape"))

    def close(self) -> None:
        """Close this process's end of the pipe."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1

    def last_line(self) -> str:
        """Return the last line that the child wrote, once it has exited."""
        self._reader.join(timeout=1)
        return self._last
