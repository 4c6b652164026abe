"""Which Java Spark runs on.

`JAVA_HOME`, else `java` on the path, else the one that spark-submit.sh has installed beside the packages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


class JavaError(Exception):
    """There is no Java that Spark can run on; the message says what to do."""


def java_home() -> Path:
    """The home of the Java to use.

    Raises:
        JavaError: if there is none, or none that is new enough.
    """
    found = [home for home in _candidates() if (home / "bin" / "java").exists()]
    for home in found:
        if (version(home) or OLDEST) >= OLDEST:
            return home
    seen = "".join(f"; {home} is version {version(home)}" for home in found)
    raise JavaError(
        f"no Java {OLDEST} or newer was found{seen}: "
        "install one, set JAVA_HOME, or start by ./spark-submit.sh, which gets one"
    )


def _candidates() -> list[Path]:
    given, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    homes = [Path(given)] if given else []
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return [*homes, Path(sys.prefix) / "share" / "commitlake" / "java"]


def version(home: Path) -> int | None:
    """The major version of a Java, as its file `release` tells it, or None where it does not."""
    try:
        told = _VERSION.search((home / "release").read_text(errors="replace"))
    except OSError:
        return None
    if told is None:
        return None
    return 8 if told[1] == "1" else int(told[1])
