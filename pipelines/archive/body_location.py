"""Location of a lake's bodies: one root for all of them, recorded in commits.

References to bodies in rows do not contain the root, and a query uses only one, so bodies at a second location would
not be found.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from commitlake.connectors.lake.archive_commits import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.lake import BODIES, Lake
from commitlake.connectors.lake.owned_folders import broker_folder_names, refuse_owned_folder
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.paths import LakeError, local_folder_or_none
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.storage.uris import parse_s3_uri

logger = logging.getLogger(__name__)

IN_LAKE = "bodies"
"""Location in commits if the packs are in the lake itself, so that a lake can be moved as a whole."""
WAY_OUT = (
    "Move all packs to a place outside the lake, or to 'bodies' in it, then run archive once with --bodies NEW "
    "--bodies-moved"
)


def check_bodies_writable(lake: Lake) -> None:
    """Raise an error, before a run starts, if packs (files of message bodies) cannot be written.

    A warning is logged for a lake whose bodies are already in such a folder.

    Raises:
        PackStoreError: if packs cannot be written there.
        LakeError: if the root is in a folder of the lake other than `bodies`, in a table of another lake, or in a
            folder of any broker's store.
        S3Error: if the root is in an object store but names no bucket, or the store cannot be reached.
    """
    folder = find_forbidden_folder(lake, lake.bodies_root)
    if folder is not None:
        if not _has_bodies(lake):
            raise LakeError(
                f"--bodies {lake.bodies_root} is in {folder}, a folder of a lake, where maintain deletes files that no "
                f"table refers to: name a folder outside the lake, or {lake.uri(BODIES)}"
            )
        # Refusing here would stop the archive of a lake that an earlier version allowed, while the broker deletes its
        # log.
        logger.warning("the bodies of this lake are in %s, a folder of a lake, where maintain would delete them. %s",
                       folder, WAY_OUT)  # fmt: skip
    open_pack_store(lake.packs).check_writable()
    if folder is not None or bodies_root(lake) == IN_LAKE:
        return
    try:
        refuse_owned_folder(lake.bodies_root, "--bodies", lake.packs.s3)
    except LakeError as error:
        if not _has_bodies(lake):
            raise
        logger.warning("%s. %s", error, WAY_OUT)


def _has_bodies(lake: Lake) -> bool:
    """Return whether the newest archive run stored bodies at the location of the packs."""
    last = read_last_commit(lake)
    return last is not None and last.bodies == bodies_root(lake)


def check_outside_stores(stores: Iterable[Store], location: str, option_name: str) -> None:
    """Raise an error if a location is in a folder of a store, which belongs to the broker.

    A broker may not start with other files among its segments, and a later rebuild replaces its folders.

    Args:
        stores: the stores that are read.
        location: a lake, or the root of its packs.
        option_name: the option that names it.

    Raises:
        LakeError: naming the folder.
    """
    folder = local_folder_or_none(location)
    if folder is None:
        return
    chosen = Path(os.path.realpath(folder))
    for store in stores:
        if store.is_remote:
            continue
        root = Path(os.path.realpath(store.root)).parent
        for name in sorted(broker_folder_names(store.format)):
            if chosen.is_relative_to(root / name):
                raise LakeError(
                    f"{option_name} {location} is in {root / name}, which belongs to the broker: name a folder outside "
                    "it"
                )


def bodies_root(lake: Lake) -> str:
    """Return the root folder of the packs as archive commits record it; a constant if it is inside the lake."""
    root = _canonical_root(lake.bodies_root)
    return IN_LAKE if root == _canonical_root(lake.uri(BODIES)) else root


def check_bodies_root_unchanged(last_commit: ArchiveCommit, root: str) -> None:
    """Raise an error if packs would be written to another location than the lake's existing ones.

    Args:
        last_commit: the lake's newest commit; commits of earlier versions do not record the location.
        root: from `bodies_root`.

    Raises:
        LakeError: if it is a different one.
    """
    if last_commit.bodies in (None, root):
        return
    raise LakeError(
        f"the bodies of this lake are {_location_text(str(last_commit.bodies))}, but this run would write them "
        f"{_location_text(root)}, and bodies in two places cannot be found. Archive to the same place; or move all "
        "packs to the other one, and pass --bodies-moved once"
    )


def _location_text(root: str) -> str:
    return "in the lake itself (no --bodies)" if root == IN_LAKE else f"in {root} (--bodies)"


def _canonical_root(root: str) -> str:
    """Return a folder's absolute path, or an s3:// URI in its canonical form."""
    return str(local_folder_or_none(root) or parse_s3_uri(root))


def find_forbidden_folder(lake: Lake, bodies: str) -> str | None:
    """Return the folder of a lake in which a location for bodies is not allowed; None if the location is allowed.

    `maintain` would delete packs in a table's folder.

    In a lake, bodies may only be in the folder `bodies` and its subfolders. Links and `..` are resolved. If a table is
    a link to another disk, the link's target is checked, too.

    Args:
        bodies: root of the packs, as a folder, a `file:` URI, or `s3://bucket/prefix`.
    """
    spelled, root = local_folder_or_none(bodies), local_folder_or_none(lake.root)
    if spelled is None:
        prefix, place = f"{lake.root.rstrip('/')}/", f"{str(parse_s3_uri(bodies)).rstrip('/')}/"
        is_inside = root is None and place.startswith(prefix) and not place.startswith(f"{lake.uri(BODIES)}/")
        return prefix + place.removeprefix(prefix).partition("/")[0] if is_inside else None
    if root is None:
        return None
    own = root / BODIES
    if spelled.is_relative_to(own) or spelled.resolve().is_relative_to(own.resolve()):
        return None
    for folder in _folders_of_lake(root):
        if any(place.is_relative_to(folder) for place in (spelled, spelled.resolve())):
            return str(folder)
    return None


def _folders_of_lake(root: Path) -> list[Path]:
    """Return the lake's own folder and the folders in it, with links resolved."""
    tables = [path for path in root.iterdir() if path.is_dir() and path.name != BODIES] if root.is_dir() else []
    return [*tables, *(path.resolve() for path in tables), root, root.resolve()]
