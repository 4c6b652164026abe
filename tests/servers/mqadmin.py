"""RocketMQ's command line `mqadmin`, run for the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.jars import java_command
from tests.servers.java_programs import CLIENT, JVM, compiled_programs
from tests.servers.rocketmq import rocketmq_jars, write_quiet_logging


def mqadmin(
    version: str,
    folder: Path,
    *arguments: str,
    jvm: Sequence[str] = JVM,
    account: tuple[str, str] | None = None,
) -> str:
    """Return what a command prints.

    Args:
        version: RocketMQ's.
        folder: an own folder.
        arguments: the command and its arguments.
        jvm: settings of the virtual machine.
        account: access key and secret key that sign the requests.
    """
    classes, jars = compiled_programs(version), rocketmq_jars(version)
    write_quiet_logging(folder / "conf", "ERROR")
    if account is not None:
        (folder / "conf" / "tools.yml").write_text(f"accessKey: {account[0]}\nsecretKey: {account[1]}\n")
    command = [java_command(), *jvm, *CLIENT, f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}"]
    command += [f"-Djava.io.tmpdir={folder}", f"-Drocketmq.home.dir={folder}"]
    command += ["-cp", f"{classes}:{jars}/*", "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Exception" not in done.stdout + done.stderr, (done.stdout + done.stderr)[-3000:]
    return done.stdout
