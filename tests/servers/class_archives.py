"""Archives of the classes that RocketMQ's JVMs load at startup; they halve the processor time of a start.

`tests.servers.prepare` creates them with `tests.servers.rocketmq_classes`. JVMs also start without them.
"""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

from tests.servers.cache import cache_folder, digest
from tests.servers.jars import java_command

JAVA_SOURCES = Path(__file__).resolve().parents[1] / "java"
"""The tests' own programs, whose classes are also in an archive."""

_QUIET = "-Xlog:disable"
"""A JVM starts without an archive that does not fit, and prints a warning on standard output."""


@lru_cache
def java_version() -> str:
    """Return the version text of the tests' Java; an archive is valid for one version only."""
    return subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True).stderr


def rocketmq_archives(version: str) -> Path:
    """Return the folder for the archives of a RocketMQ version, which need not exist yet."""
    sources = (source.read_text() for source in sorted(JAVA_SOURCES.glob("*.java")))
    return cache_folder() / "rocketmq-classes" / f"{version}-{digest([java_version(), *sources])}"


def archive_options(folder: Path, name: str) -> list[str]:
    """Return the options of a JVM that loads classes from an archive; none if there is no archive.

    Args:
        folder: folder of the archives.
        name: name of the archive.
    """
    archive = _path(folder, name)
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.exists() else []


def recording_options(folder: Path, name: str) -> list[str]:
    """Return the options of a JVM that writes an archive when it ends by itself or by SIGTERM."""
    return [f"-XX:ArchiveClassesAtExit={_path(folder, name)}", _QUIET]


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsa"
