"""Programs in tests/java: RocketMQ's own client and decoder, run for the tests.

Each prints JSON lines, which are described at the top of its source. They are compiled once per RocketMQ version.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.cache import build_once, cache_folder, digest
from tests.servers.class_archives import JAVA_SOURCES, archive_options, rocketmq_archives
from tests.servers.jars import java_command
from tests.servers.rocketmq import FAST_JVM, RocketMQ, rocketmq_jars, write_quiet_logging

PROGRAMS = "programs"
"""Name of the programs' archive of classes."""
_JAR = "programs.jar"
_TRACES_LOST = 75
"""The exit code of Traces.java."""

Row = dict[str, Any]
"""One line of a program's output."""

# For short programs on a busy machine, the quick compiler and the serial collector use the least processor time.
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# By default, a consumer updates its list of queues every 20 s.
CLIENT = ("-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.logLevel=ERROR")


class JavaProgramError(Exception):
    """Error for a program that failed or took too long; the message contains its standard error."""


class LostTracesError(JavaProgramError):
    """Error for traces that did not arrive, because RocketMQ's client drops traces that it fails to send."""


def programs_class_path(version: str) -> str:
    """Return the class path of the programs for a RocketMQ version; compile them if they are not in the cache.

    It contains no folders, because a JVM ignores an archive of classes if there is one.

    Raises:
        JavaProgramError: A source does not compile against that version.
    """
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    jars = rocketmq_jars(version)
    name = digest([jars.name, *(source.read_text() for source in sources)])

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as made:
            command = [java_command("javac"), "-encoding", "UTF-8", "-nowarn", "-proc:none"]
            command += ["-cp", f"{jars}/*", "-d", made, *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise JavaProgramError(f"javac for RocketMQ {version}:\n{done.stdout}{done.stderr}")
            # A client logs a warning for every topic that does not exist yet.
            write_quiet_logging(Path(made), "ERROR")
            with zipfile.ZipFile(folder / _JAR, "w") as jar:
                for path in sorted(Path(made).iterdir()):
                    jar.write(path, path.name)

    folder = build_once(cache_folder() / "programs" / f"{version}-{name}", build)
    return f"{folder / _JAR}:{jars}/*"


def run_java(
    server: RocketMQ | str,
    program: str,
    arguments: Sequence[str],
    timeout_seconds: float = 180,
    jvm: Sequence[str] = JVM,
) -> list[Row]:
    """Run one of the programs, and return the objects that it printed.

    Args:
        server: The server, or only the version, with whose libraries the program runs.
        program: Name of the class.
        arguments: All of its arguments; the address of the name server is not added.
        timeout_seconds: Time limit.
        jvm: Options of the JVM; by default those for a short program.

    Raises:
        LostTracesError: A client's traces did not arrive; retry with new servers.
        JavaProgramError: It ended with an exit code other than 0, or not in time.
    """
    version = server if isinstance(server, str) else server.version
    with tempfile.TemporaryDirectory() as home:
        # The client of 4.9.x writes its log below the user's home. Native libraries and test certificates are written
        # to the folder for temporary files, and left there.
        recording = any(option.startswith("-XX:ArchiveClassesAtExit") for option in jvm)
        archive = [] if recording else archive_options(rocketmq_archives(version), PROGRAMS)
        command = [java_command(), *archive, *jvm, *CLIENT]
        command += [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", f"-Drocketmq.client.logRoot={home}"]
        command += ["-cp", programs_class_path(version), program, *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
                # Java decodes its arguments by the locale, and keys may be Chinese.
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stderr or b"")[-4000:]
            raise JavaProgramError(f"{program} took over {timeout_seconds} s: {said!r}") from late
    if done.returncode != 0:
        kind = LostTracesError if done.returncode == _TRACES_LOST else JavaProgramError
        raise kind(
            f"{program} on RocketMQ {version} ended with code {done.returncode}:\n"
            f"{done.stderr[-4000:]}\nafter {done.stdout[-500:]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def dump_store(version: str, store: Path) -> list[Row]:
    """Return every record of a store as RocketMQ's MessageDecoder reads it, in physical order."""
    return run_java(version, "DumpStore", [str(store)])


def produce_every_kind(rocketmq: RocketMQ, *kinds: str) -> list[Row]:
    """Send messages of the given kinds, or of all kinds, and wait for the records that the broker derives from them."""
    return run_java(rocketmq, "ProduceEveryKind", [rocketmq.name_server_address, *kinds])


def fail_every_message(rocketmq: RocketMQ, topic: str, group: str, max_reconsume_times: int = 2) -> list[Row]:
    """Fail to consume a topic until each of its messages is a dead letter of the group."""
    arguments = [rocketmq.name_server_address, topic, group]
    return run_java(rocketmq, "FailingConsumer", [*arguments, str(max_reconsume_times), "90"])


def consume_all(rocketmq: RocketMQ, *topics: str) -> list[Row]:
    """Pull every message of the given topics, as a consumer sees them."""
    return run_java(rocketmq, "ConsumeAll", [rocketmq.name_server_address, *topics])


def count_origins(rocketmq: RocketMQ, topic: str, timeout_seconds: float = 600) -> list[Row]:
    """Return the replayed messages of each queue of a topic, in order, as a consumer sees them."""
    return run_java(rocketmq, "CountOrigins", [rocketmq.name_server_address, topic], timeout_seconds, jvm=FAST_JVM)


def look_up(rocketmq: RocketMQ, *questions: tuple[str, str, str]) -> list[Row]:
    """Query the broker's index, messages by id, and queue offsets.

    Args:
        rocketmq: The running servers.
        questions: Tuples `(verb, topic, value)` with the verbs `key`, `unique`, `id`, `time` and `range` (see
            Lookup.java).

    Returns:
        A row for every message or queue found, with the question.
    """
    words = [word for question in questions for word in question]
    return run_java(rocketmq, "Lookup", [rocketmq.name_server_address, *words])
