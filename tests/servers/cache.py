"""Things that are made once and kept between test runs: server jars, compiled Java programs.

They live outside the repository, so that a clean checkout does not fetch 200 MB again, in folders
whose names hold a digest of what they were made from. A folder is either whole or absent: it is
built beside its place and renamed into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder that holds everything kept between test runs.

    Returns:
        `$COMMITLAKE_TEST_CACHE`, or `~/.cache/commitlake/tests`.
    """
    configured = os.environ.get("COMMITLAKE_TEST_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "commitlake" / "tests"


def digest(parts: Iterable[str]) -> str:
    """Return a short name for a sequence of texts; order counts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`, calling `build` to fill it if it is not there yet.

    Two processes may build the same folder at once: the first to finish wins, the other's work is
    dropped.

    Args:
        target: The folder wanted.
        build: Fills the empty folder that it is given; an exception from it leaves nothing behind.

    Returns:
        `target`, complete.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        build(beside)
        beside.chmod(0o755)
        # A folder cannot be renamed onto one that holds files: that is the other process having
        # won.
        with contextlib.suppress(OSError):
            beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if not target.is_dir():
        raise OSError(f"{target} was built but could not be moved into its place")
    return target
