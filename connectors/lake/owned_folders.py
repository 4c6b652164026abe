"""Search for folders in which no other files may be written: tables of lakes, and folders of brokers' stores.

`maintain` deletes files that a table does not know. A broker deletes queues of topics that it does not know, and may
not start if there are other files among its segments. `ship` and `rebuild` replace files in a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.paths import LakeError, local_folder_or_none
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import S3Uri, parse_s3_uri
from commitlake.schemas import shipped_manifest
from commitlake.schemas.layouts.segment_names import is_segment_name

_CONFIG = "config"
_CHECKPOINT = "checkpoint"
_MAX_NAMES = 1000
"""Number of names that are examined in a folder: a folder of segments has few other files."""


@dataclass(frozen=True, slots=True)
class OwnedFolder:
    """A folder in which other programs or lakes may not write.

    Attributes:
        folder: its path or URI.
        owner: description of what the folder is.
    """

    folder: str
    owner: str


def refuse_owned_folder(location: str, option: str, s3: S3Options | None = None) -> None:
    """Refuse a path or URI inside a table of a lake, or inside a folder of a broker's store.

    Args:
        location: a folder, a `file:` URI, or `s3://bucket/prefix`; it need not exist.
        option: the option that names it.
        s3: its object store; by default that of the environment.

    Raises:
        LakeError: with the folder that contains the place.
        S3UnavailableError: if an object store cannot be reached.
    """
    found = find_owned_folder(location, s3)
    if found is not None:
        raise LakeError(
            f"{option} {location} is in {found.folder}, {found.owner}, where unknown files may be deleted: name a "
            "place outside this folder"
        )


def find_owned_folder(location: str, s3: S3Options | None = None) -> OwnedFolder | None:
    """Return the innermost folder around a location in which no other program may write; None if there is none.

    Links and `..` in a local path are resolved, and the path as it is written is checked, too. In an object store,
    each prefix of the place costs two requests; prefixes that may not be listed are skipped.

    Args:
        location: see `refuse_owned_folder`.
        s3: likewise.

    Raises:
        S3Error: if the place names no bucket, or the object store cannot be reached.
    """
    spelled = local_folder_or_none(location)
    if spelled is None:
        return _find_owned_prefix(parse_s3_uri(location), s3)
    resolved = Path(os.path.realpath(spelled))
    # Both spellings: a link in the path may lead out of a store, or into one.
    for folder in dict.fromkeys([spelled, *spelled.parents, resolved, *resolved.parents]):
        owner = _find_folder_owner(folder)
        if owner is not None:
            return OwnedFolder(str(folder), owner)
    return None


def broker_folder_names(log_format: Format) -> frozenset[str]:
    """Return the names of the folders of a store that belong to the broker."""
    rebuilt = (name.split("/")[0] for name in log_format.folders.rebuilt)
    return log_format.folders.own.union(rebuilt, (log_format.folder, _CONFIG))


def _find_folder_owner(folder: Path) -> str | None:
    def is_store(log_format: Format) -> bool:
        root = folder.parent
        has_queues = any((root / name).is_dir() for name in log_format.queues.folders)
        return _has_segment(root / log_format.folder) or (has_queues and (root / _CHECKPOINT).is_file())

    try:
        if (folder / LOG).is_dir():
            return "a table of a lake"
        if _has_segment(folder):
            return "the log of a broker"
        return _describe_store_folder(folder.name, is_store, (folder.parent / shipped_manifest.LOG_MANIFEST).is_file)
    except OSError:  # this user may not look there, or no such folder can exist: writing fails, too
        return None


def _describe_store_folder(name: str, is_store: Callable[[Format], bool], is_shipped: Callable[[], bool]) -> str | None:
    """Return a description if a folder of this name belongs to a broker's store or to its copy; else None."""
    formats = [log_format for log_format in all_formats() if name in broker_folder_names(log_format)]
    if any(is_store(log_format) for log_format in formats):
        return "a folder of a broker's store"
    return "a folder of a shipped store" if (formats or name == shipped_manifest.FOLDER) and is_shipped() else None


def _has_segment(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(is_segment_name(entry.name) and not entry.is_dir() for entry in islice(entries, _MAX_NAMES))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _find_owned_prefix(location: S3Uri, s3: S3Options | None) -> OwnedFolder | None:
    from commitlake.connectors.storage.s3_clients import s3_options
    from commitlake.connectors.storage.s3_storage import S3Storage

    options = s3 or s3_options()

    def list_first_names(parts: list[str], prefix: str) -> list[str]:
        try:
            return S3Storage(str(S3Uri(location.bucket, "/".join(parts))), options).list_first_names(prefix)
        except S3UnavailableError:
            raise
        except S3Error:  # a user may be allowed to list only some prefixes
            return []

    def has_segment(parts: list[str]) -> bool:
        # An offset has at most 19 digits, so a segment's name of 20 digits begins with a 0.
        return any(is_segment_name(name) for name in list_first_names(parts, "0"))

    def find_owner(parts: list[str]) -> str | None:
        root = parts[:-1]
        if list_first_names(parts, f"{LOG}/"):
            return "a table of a lake"
        if has_segment(parts):
            return "the log of a broker"
        return _describe_store_folder(
            parts[-1],
            lambda log_format: has_segment([*root, log_format.folder]),
            lambda: bool(list_first_names(root, shipped_manifest.LOG_MANIFEST)),
        )

    parts = location.prefix.split("/") if location.prefix else []
    # The innermost first, because a lake may itself be beside others in a folder.
    for depth in range(len(parts), 0, -1):
        owner = find_owner(parts[:depth])
        if owner is not None:
            return OwnedFolder(str(S3Uri(location.bucket, "/".join(parts[:depth]))), owner)
    return None
