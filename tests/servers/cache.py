"""Cache of artifacts that are kept between test runs: server jars, compiled Java programs.

They are outside the repository, so that a clean checkout does not download 200 MB again. The name of a folder contains
a digest of its inputs. A folder is either complete or absent: it is built under a temporary name and then renamed.
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
    """Return the folder with everything that is kept between test runs.

    Returns:
        `$COMMITLAKE_TEST_CACHE`, or `~/.cache/commitlake/tests`.
    """
    configured = os.environ.get("COMMITLAKE_TEST_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "commitlake" / "tests"


def digest(parts: Iterable[str]) -> str:
    """Return a short name for a sequence of texts; their order matters."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`, and call `build` to fill it if it does not exist.

    Two processes may build the same folder at once; the first one to finish wins, and the result of the other is
    deleted.

    Args:
        target: The folder.
        build: Fills an empty folder; if it raises an exception, nothing is kept.

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
        # A folder cannot be renamed to one with files; then the other process was first.
        with contextlib.suppress(OSError):
            beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if not target.is_dir():
        raise OSError(f"{target} was built but could not be moved into its place")
    return target
