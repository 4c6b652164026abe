"""The JVM of a session that a job begins: started through spark-submit, and quiet.

pyspark starts spark-submit with the options in `PYSPARK_SUBMIT_ARGS`. Settings are put before what stands there
already, so that a user's options win.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence

from py4j.java_gateway import JavaGateway
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from connectors.java import JavaError, java_home
from connectors.spark_noise import without_noise

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_STANDARD_ERROR = 2


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Start a JVM.

    Args:
        settings: of Spark, for what the user has not set.

    Raises:
        JavaError: if there is no Java, or the JVM ends at once.
    """
    given = os.environ.get(_ARGUMENTS, "pyspark-shell")
    words = arguments(settings, shlex.split(given))
    _set_environment(is_local=master(words).startswith("local"))
    os.environ[_ARGUMENTS] = shlex.join(words)
    said = _Said()
    try:
        return launch_gateway(popen_kwargs={"stderr": said.write_end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        said.close()
        raise JavaError(f"Spark did not start on the Java in {os.environ['JAVA_HOME']}: {said.last()}") from None
    finally:
        said.close()
        os.environ[_ARGUMENTS] = given


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
                os.write(_STANDARD_ERROR, line.encode(errors="surrogateescape"))

    def close(self) -> None:
        """Leave the pipe to the child."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1

    def last(self) -> str:
        """The last line, once the child has ended."""
        self._reader.join(timeout=1)
        return self._last
