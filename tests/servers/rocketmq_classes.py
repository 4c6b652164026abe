"""Creation of the archives of `tests.servers.class_archives` for a RocketMQ version."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.servers.cache import build_once
from tests.servers.class_archives import recording_options, rocketmq_archives
from tests.servers.java_programs import JVM, PROGRAMS, run_java
from tests.servers.rocketmq import RocketMQ


def class_archives(version: str) -> Path:
    """Return the folder with the archives; create them if they are not in the cache.

    They are written by the JVMs of a name server, a broker and a client program after a few messages.
    """
    return build_once(rocketmq_archives(version), lambda folder: _make(version, folder))


def _make(version: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, RocketMQ(version, Path(scratch), archives_to=folder) as rocketmq:
        jvm = (*JVM, *recording_options(folder, PROGRAMS))
        run_java(rocketmq, "ProduceEveryKind", [rocketmq.name_server_address, "plain"], jvm=jvm)
