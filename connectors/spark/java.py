"""Choice of the Java installation for Spark.

Candidates are `JAVA_HOME`, `java` on the path, and the one that spark-submit.sh installs beside the packages; the first
suitable one is used. Version and modules come from the file `release`; a Java without that file is assumed to be
suitable.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from commitlake.schemas.errors import CommitLakeError, ExitCode

OLDEST = 17
# Spark's launcher always requests it, and a Java without it exits at once.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)


class JavaError(CommitLakeError):
    """Error for a missing or unsuitable Java; the message says what to do."""

    exit_code = ExitCode.FAILED


def java_home() -> Path:
    """Return the home folder of the Java installation to use.

    Raises:
        JavaError: if there is no suitable Java.
    """
    seen = []
    for home in _candidate_homes():
        if (home / "bin" / "java").exists():
            fault = _find_java_problem(home)
            if fault is None:
                return home
            seen.append(f"{home} {fault}")
    raise JavaError(
        f"no Java {OLDEST} or newer was found{''.join(f'; {what}' for what in seen)}: "
        "install one, or set JAVA_HOME; ./spark-submit.sh of a clone installs one"
    )


def _candidate_homes() -> list[Path]:
    given, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    homes = [Path(given)] if given else []
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return [*homes, Path(sys.prefix) / "share" / "commitlake" / "java"]


def _find_java_problem(home: Path) -> str | None:
    """Return why a Java installation cannot be used, or None if it can."""
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
