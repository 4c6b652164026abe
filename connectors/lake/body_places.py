"""Check for the place of a lake's bodies: not in a table's folder, where `maintain` would delete them."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import local_folder
from commitlake.connectors.storage.uris import is_s3, parse_s3_uri

WAY_OUT = (
    "Move all packs to a place outside the lake, or to 'bodies' in it, then run archive once with --bodies NEW "
    "--bodies-moved"
)


def folder_around(lake: Lake, bodies: str) -> str | None:
    """Return the folder of a lake that contains a place for bodies, or None if bodies may be stored there.

    In a lake, bodies may only be in the folder `bodies` and its subfolders. Links and `..` are resolved. If a table is
    a link to another disk, the link's target is checked, too.

    Args:
        bodies: root of the packs, as a folder, a `file:` URI, or `s3://bucket/prefix`.
    """
    if is_s3(bodies):
        prefix, place = f"{lake.root.rstrip('/')}/", f"{str(parse_s3_uri(bodies)).rstrip('/')}/"
        is_inside = is_s3(lake.root) and place.startswith(prefix) and not place.startswith(f"{lake.bodies}/")
        return prefix + place.removeprefix(prefix).partition("/")[0] if is_inside else None
    if is_s3(lake.root):
        return None
    spelled, root = local_folder(bodies), local_folder(lake.root)
    own = root / "bodies"
    if spelled.is_relative_to(own) or spelled.resolve().is_relative_to(own.resolve()):
        return None
    for folder in _own_folders(root):
        if any(place.is_relative_to(folder) for place in (spelled, spelled.resolve())):
            return str(folder)
    return None


def _own_folders(root: Path) -> list[Path]:
    """Return the lake's own folder and the folders in it, with links resolved."""
    tables = [path for path in root.iterdir() if path.is_dir() and path.name != "bodies"] if root.is_dir() else []
    return [*tables, *(path.resolve() for path in tables), root, root.resolve()]
