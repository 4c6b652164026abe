"""Local paths of lakes, the check that they contain no symbolic links, and the error for an invalid lake.

deltalake and Spark follow links. A link at the path of a table, its log or a partition would make a job read, move or
delete files outside the lake. The lake's own folder may be a link, and so may a folder given with `--bodies`, because
the user names these. Object stores have no links.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from commitlake.connectors.lake.delta_log.file_names import LOG, SEALS
from commitlake.connectors.storage.uris import is_s3, is_uri
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.safe_store_files import UnsafeFileError, check_folder, check_tree, describe_file_type


def local_folder(path_or_uri: str) -> Path:
    """Return the absolute path of a local folder, given as a path or a `file:` URI, without resolving links."""
    path = unquote(urlsplit(path_or_uri).path) if path_or_uri.startswith("file:") else path_or_uri
    return Path(os.path.abspath(path))  # noqa: PTH100


def local_folder_or_none(path_or_uri: str) -> Path | None:
    """Return the folder of this machine that a path or a `file:` URI names, or None for a URI of an object store.

    >>> local_folder_or_none("/data/lake"), local_folder_or_none("s3://bucket/lake")
    (PosixPath('/data/lake'), None)
    """
    return None if is_s3(path_or_uri) else local_folder(path_or_uri)


class LakeError(CommitLakeError):
    """A folder is not, or cannot become, a lake; the message is for a user."""

    exit_code = ExitCode.USAGE


_WAY_OUT = ". A lake may not contain links: move what it leads to into its place, or remove it"


def check_links(root: Path) -> None:
    """Refuse a lake with a symbolic link in its folder, in the folder of a table, or in that of a log.

    Files within partitions are not visited. `check_table_links` does that for one table.

    Raises:
        UnsafeFileError: with the path of the first link.
    """
    for folder in _inner_folders(root):
        for within in _inner_folders(folder):
            if within.name == LOG:
                check_not_link(folder / SEALS)


def check_table_links(table_uri: str) -> None:
    """Refuse a local table whose folder, or anything in it at any depth, is a symbolic link.

    Raises:
        UnsafeFileError: with the path of the first link.
    """
    if not is_uri(table_uri):
        check_folder_links(Path(table_uri))


def check_folder_links(folder: Path) -> None:
    """Refuse a folder that is or contains a symbolic link, at any depth; do nothing if it does not exist.

    Raises:
        UnsafeFileError: with the path of the first link.
    """
    if check_folder(folder, _WAY_OUT):
        check_tree(folder)


def check_not_link(path: Path) -> None:
    """Refuse a path that is a symbolic link; do nothing if there is no such file.

    Raises:
        UnsafeFileError: if it is a link.
    """
    if path.is_symlink():
        raise _link_error(path, is_folder=path.is_dir())


def _inner_folders(folder: Path) -> list[Path]:
    """Return the subfolders of a folder, sorted by name; refuse a folder that contains a symbolic link."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:  # it does not exist, is a file, or is not readable: other checks report that
        return []
    for entry in found:
        if entry.is_symlink():
            raise _link_error(Path(entry.path), is_folder=entry.is_dir())
    return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]


def _link_error(path: Path, *, is_folder: bool) -> UnsafeFileError:
    expected = "a folder" if is_folder else "a file"
    return UnsafeFileError.of(path, expected, describe_file_type(path.lstat().st_mode) + _WAY_OUT)
