"""The location of a run's bodies: one for all bodies of a lake, which the commits remember.

A row's reference has no root, and a question asks one root: bodies in a second place would be found by nobody.
"""

from __future__ import annotations

import logging
import os
from urllib.parse import unquote, urlsplit

from commitlake.connectors.lake.archive_log import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.body_places import WAY_OUT, folder_around
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.connectors.object_store.uris import is_s3, parse_s3_uri

logger = logging.getLogger(__name__)

IN_LAKE = "bodies"
"""What a commit says of packs in the lake itself, so that a lake can be moved as a whole."""


def check_bodies(lake: LakePaths, bodies: str | None) -> None:
    """See, before anything is done, whether packs can be in their place.

    A lake whose bodies are in one of its own folders already is warned of: they are found there, until maintain or
    another tool deletes what no table names.

    Args:
        lake: where the tables lie.
        bodies: root of the packs; in the lake where not given.

    Raises:
        PackStoreError: if they cannot.
        LakeError: if the root is in a folder of the lake other than `bodies`.
        S3Error: if the root is in an object store and names no bucket.
    """
    folder = folder_around(lake, bodies or lake.bodies)
    if folder is not None:
        last = read_last_commit(lake.messages)
        if last is None or last.bodies != bodies_root(lake, bodies):
            raise LakeError(
                f"--bodies {bodies} lies in {folder}, a folder of the lake: expected a place outside the lake, or "
                f"{lake.bodies}, as maintain deletes what no table names"
            )
        logger.warning("this lake's bodies lie in %s, one of its own folders, where maintain would delete them. %s",
                       folder, WAY_OUT)  # fmt: skip
    open_store(bodies or lake.bodies).check()


def bodies_root(lake: LakePaths, bodies: str | None) -> str:
    """Return the root of the packs, as commits name it; for the arguments see `check_bodies`."""
    root = _spelled(bodies or lake.bodies)
    return IN_LAKE if root == _spelled(lake.bodies) else root


def check_same_root(last: ArchiveCommit, root: str) -> None:
    """Refuse another place than that of the bodies that are there.

    Args:
        last: the lake's newest commit; one of an earlier version does not say where its bodies are.
        root: from `bodies_root`.

    Raises:
        LakeError: if it is another one.
    """
    if last.bodies in (None, root):
        return
    raise LakeError(
        f"the bodies of this lake are {_told(str(last.bodies))}, found {_told(root)}: in two places, one half of them "
        "would not be found. Archive to the place that they are in; or move all packs to the other one, and say so "
        "once with --bodies-moved"
    )


def _told(root: str) -> str:
    return "in the lake itself (no --bodies)" if root == IN_LAKE else f"in {root} (--bodies)"


def _spelled(root: str) -> str:
    """One name for one place."""
    if is_s3(root):
        return str(parse_s3_uri(root))
    return os.path.abspath(unquote(urlsplit(root).path) if root.startswith("file:") else root)  # noqa: PTH100
