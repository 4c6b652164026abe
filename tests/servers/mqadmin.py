"""RocketMQ's command line `mqadmin`, run for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.servers.java_programs import JVM, run_java
from tests.servers.rocketmq import write_quiet_logging


def mqadmin(
    version: str,
    folder: Path,
    *commands: Sequence[str],
    jvm: Sequence[str] = JVM,
    account: tuple[str, str] | None = None,
) -> list[str]:
    """Run commands in sequence in one JVM, and return the output of each.

    Args:
        version: version of RocketMQ.
        folder: a folder of its own.
        commands: commands, each with its arguments.
        jvm: options of the JVM.
        account: access key and secret key for signing the requests.
    """
    write_quiet_logging(folder / "conf", "ERROR")
    if account is not None:
        (folder / "conf" / "tools.yml").write_text(f"accessKey: {account[0]}\nsecretKey: {account[1]}\n")
    words = [word for command in commands for word in ("--", *command)]
    rows = run_java(version, "Commands", words, jvm=(*jvm, f"-Drocketmq.home.dir={folder}"))
    assert [row["command"] for row in rows] == [command[0] for command in commands]
    for row in rows:
        assert "Exception" not in row["output"], (row["command"], row["output"][-3000:])
    return [row["output"] for row in rows]
