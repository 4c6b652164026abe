"""RocketMQ's own reading of a store, one thread: `tests/java/DecodeLog.java` on RocketMQ's published jars."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.benchmarks.asked import AskedProcess
from tests.servers.jars import JarsError, java_command
from tests.servers.java_programs import programs_class_path
from tests.servers.rocketmq import JAVA_OPENINGS

ROCKETMQ = "5.5.0"
PASSES = {"decode": "MessageDecoder.decode", "check": "recovery's check"}
"""The passes that can be requested, with their names."""

# Unlike the tests' other programs, this one uses the optimizing compiler. Records become garbage at once; this is
# cheapest with a large young generation and one collector thread, which also keeps the second core idle.
_JVM = ("-Xms1g", "-Xmx1g", "-Xmn768m", "-XX:+UseSerialGC")


def decode_log(store: Path, work: Path) -> AskedProcess:
    """Return the program, which waits for passes over a store.

    Args:
        store: its folder.
        work: folder in which the program's empty store is created.

    Raises:
        JarsError: if there is no JDK, or RocketMQ's jars cannot be fetched.
    """
    work.mkdir(parents=True, exist_ok=True)
    classes = programs_class_path(ROCKETMQ)
    folders = (f"-Duser.home={work}", f"-Djava.io.tmpdir={work}", f"-Drocketmq.client.logRoot={work}")
    command = [java_command(), *_JVM, *JAVA_OPENINGS, *folders, "-cp", classes, "DecodeLog", str(store), str(work)]
    return AskedProcess(command, {**os.environ, "LC_ALL": "C.UTF-8"})


def java_version() -> str:
    """Return the first line of `java -version`."""
    try:
        said = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True).stderr
    except JarsError:
        return "none"
    version = re.search(r'version "([^"]+)"', said)
    return version[1] if version else said.splitlines()[0]
