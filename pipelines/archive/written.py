"""Check, before a commit, that this process sees the files that a run's tasks have written.

Tasks may run on machines where the same path is a different folder. A commit would then name files that nobody can
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage.uris import is_s3


def check_written(lake: Lake, bodies: PackLocation, manifest: Sequence[ManifestRow]) -> None:
    """Check data files and packs in folders; in an object store, all machines see the same.

    Args:
        manifest: the files, which have been written and not committed.

    Raises:
        LakeError: if a file is missing, or has another size.
    """
    if lake.s3 is None:
        for row in manifest:
            if row.path:
                path = Path(lake.uri(row.table)) / row.path
                _check_size(str(path), row.size, _size_of(path))
    if not is_s3(bodies.root):
        store = open_store(bodies)
        for row in manifest:
            for name, size in row.pack_sizes.items():
                found = None
                with suppress(PackError):
                    found = store.size(name)
                _check_size(f"{bodies.root}/{name}", size, found)


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _check_size(place: str, written: int, found: int | None) -> None:
    if found != written:
        there = "no such file" if found is None else f"{found:,} bytes"
        raise LakeError(
            f"{place}: a task wrote {written:,} bytes, found {there}: the task ran on a machine where this path is a "
            "different folder. Nothing was committed. Choose a folder that all machines share, or an object store"
        )
