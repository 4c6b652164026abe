"""Which Java Spark runs on.

`JAVA_HOME`, else `java` on the path, else the one that spark-submit.sh has installed beside the packages: the first to
do. What a Java is, its file `release` tells; one without that file is taken as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from commitlake.schemas.errors import CommitLakeError, ExitCode

OLDEST = 17
# Spark's launcher always asks for it, and a Java without it ends at once.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)


class JavaError(CommitLakeError):
    """There is no Java that Spark can run on; the message says what to do."""

    exit_code = ExitCode.FAILED


def java_home() -> Path:
    """The home of the Java to use.

    Raises:
        JavaError: if there is none, or none that will do.
    """
    seen = []
    for home in _candidates():
        if (home / "bin" / "java").exists():
            fault = _fault(home)
            if fault is None:
                return home
            seen.append(f"{home} {fault}")
    raise JavaError(
        f"no Java {OLDEST} or newer was found{''.join(f'; {what}' for what in seen)}: "
        "install one, set JAVA_HOME, or start by ./spark-submit.sh, which gets one"
    )


def _candidates() -> list[Path]:
    given, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    homes = [Path(given)] if given else []
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return [*homes, Path(sys.prefix) / "share" / "commitlake" / "java"]


def _fault(home: Path) -> str | None:
    """Why a Java will not do, or None."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    version, modules = _VERSION.search(release), _MODULES.search(release)
    if version is not None and int(version[1]) < OLDEST:
        return f"is version {version[1]}"
    if modules is not None and _MODULE not in modules[1].split():
        return f"has no module {_MODULE}"
    return None
