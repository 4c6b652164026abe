"""The type of a function that rebuilds a store, and the files of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from commitlake.pipelines.rebuild.run import RebuildResult

Rebuild = Callable[..., RebuildResult]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
