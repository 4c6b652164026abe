"""The JVM of a session that a job begins: started through spark-submit, and quiet.

spark-submit is given the options in `PYSPARK_SUBMIT_ARGS`. Settings are put before what stands there already, so that a
user's options win.

The JVM is started here, and pyspark only connects to it. No library does this: pyspark's own `launch_gateway` hands out
no process before the JVM answers, so that a job that is interrupted until then leaves a JVM running. The JVM has a
session of its own, so that a terminal's Ctrl-C reaches the job alone, and ends by itself once the job is gone: its
standard input is a pipe from here.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from commitlake.connectors.printable import printable
from commitlake.connectors.runtime.java import JavaError, java_home
from commitlake.connectors.runtime.spark_noise import without_noise

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_STANDARD_ERROR = 2
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # the file in which the JVM writes where it listens
_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Start a JVM.

    Args:
        settings: of Spark, for what the user has not set.

    Raises:
        JavaError: if there is no Java, or the JVM ends at once.
    """
    words = arguments(settings, shlex.split(os.environ.get(_ARGUMENTS, "pyspark-shell")))
    _set_environment(is_local=master(words).startswith("local"))
    said = _Said()
    try:
        with tempfile.TemporaryDirectory(prefix="commitlake-jvm-") as folder:
            process = _start(words, Path(folder) / "connection", said.write_end)
            try:
                return _connect(process, Path(folder) / "connection")
            except BaseException:
                _stop(process)
                raise
    except _JvmEndedError:
        said.close()
        raise JavaError(f"Spark did not start on the Java in {os.environ['JAVA_HOME']}: {said.last()}") from None
    finally:
        said.close()


class _JvmEndedError(Exception):
    """The JVM has ended before it could be connected to."""


def _start(words: Sequence[str], connection: Path, output: int) -> subprocess.Popen[bytes]:
    script = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return subprocess.Popen(
        [str(script), *words],
        env={**os.environ, "SPARK_CONNECT_MODE": "0", _CONNECTION: str(connection)},
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _connect(process: subprocess.Popen[bytes], connection: Path) -> JavaGateway:
    """Wait until the JVM tells where it listens, and connect."""
    while not connection.exists():
        if process.poll() is not None:
            raise _JvmEndedError
        time.sleep(_POLL_SECONDS)
    with connection.open("rb") as file:
        port = read_int(file)  # type: ignore[no-untyped-call]
        secret = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    with _environment({_GATEWAY_PORT: str(port), _GATEWAY_SECRET: secret}):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process  # as pyspark does; it also keeps the pipe open
    return gateway


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables that are set while it is open."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the JVM, and what starts it: a shell, and the JVM that tells the shell its command line."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            break
    assert process.stdin is not None  # `_start` has asked for it
    process.stdin.close()


def arguments(settings: Mapping[str, str], given: Sequence[str]) -> list[str]:
    """Ours for spark-submit, then the user's; the user's jars are taken besides ours, not in their place.

    >>> arguments({"spark.jars": "ours"}, ["--jars", "a,b", "pyspark-shell"])
    ['--conf', 'spark.jars=ours', '--jars', 'a,b,ours', 'pyspark-shell']
    """
    ours = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    theirs = list(given)
    for place, word in enumerate(given):
        if word == "--jars":
            theirs[place + 1] += f",{settings['spark.jars']}"
        elif word.startswith("--jars="):
            theirs[place] += f",{settings['spark.jars']}"
    return ours + theirs


def master(words: Sequence[str]) -> str:
    """Which master spark-submit takes from its arguments: that of the option, else that of the last setting.

    >>> master(["--conf", "spark.master=local[*]", "--master", "yarn", "pyspark-shell"])
    'yarn'
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master")
    parser.add_argument("--conf", action="append", default=[])
    known, _ = parser.parse_known_args(list(words))
    settings = dict(setting.split("=", 1) for setting in known.conf)
    return str(known.master or settings.get("spark.master", ""))


def _set_environment(*, is_local: bool) -> None:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Another Spark, which the user's environment may name, would be of another version than this pyspark.
    os.environ.pop("SPARK_HOME", None)


class _Said:
    """What a child says on standard error, passed on to ours without the noise."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._last = "it gave no reason"
        self._reader = threading.Thread(target=self._pass_on, args=(read_end,), daemon=True)
        self._reader.start()

    def _pass_on(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="surrogateescape", newline="") as lines:
            for line in without_noise(lines):
                self._last = line.strip() or self._last
                # Where the child itself would have written, whatever sys.stderr is.
                shown = printable(line) if os.isatty(_STANDARD_ERROR) else line
                os.write(_STANDARD_ERROR, shown.encode(errors="surrogateescape"))

    def close(self) -> None:
        """Leave the pipe to the child."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1

    def last(self) -> str:
        """The last line, once the child has ended."""
        self._reader.join(timeout=1)
        return self._last
