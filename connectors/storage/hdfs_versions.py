"""Files in HDFS that are replaced on a condition: folders whose files are the versions, named by their numbers.

    shipped/log.json/00000000000000000017      the newest version is the content
    shipped/log.json/00000000000000000016      the one before it, for readers that have just listed the folder

HDFS can rename a file to a name that does not exist yet, which only one of two processes can do, but it cannot compare
a file and replace it. So a new version is a rename to the next number: it succeeds only if no other process has written
that version. Old versions are deleted, so a process that was suspended for long can still create a version with a
number that existed before. It has no effect: the largest number counts, versions are deleted only below a larger one,
and the process that created the version finds the larger one when it lists the folder afterwards.

If all versions are deleted, numbers begin again. So a process also compares the version that it replaces, by size and
time, before and after its rename.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.connectors.storage.hdfs_clients import HdfsClient
from commitlake.schemas.shipped import VERSION_DIGITS, is_version_name


class Version(NamedTuple):
    """A version as a listing shows it; another file with the same number has another time."""

    number: int
    size: int
    modified_ms: int


def version_path(folder: str, number: int) -> str:
    """Return the path of a version.

    >>> version_path("/copy/shipped/log.json", 17)
    '/copy/shipped/log.json/00000000000000000017'
    """
    return f"{folder}/{number:0{VERSION_DIGITS}d}"


def list_versions(client: HdfsClient, folder: str) -> list[int]:
    """Return the numbers of the versions that exist, in order; none if the folder does not exist."""
    try:
        return [version.number for version in find_versions(client, folder)]
    except NotADirectoryError:
        return []


def find_versions(client: HdfsClient, folder: str) -> list[Version]:
    """Return the versions that exist, in order; none if the folder does not exist.

    Raises:
        NotADirectoryError: if it is a file.
    """
    try:
        entries = client.list(folder)
    except FileNotFoundError:
        return []
    if any(found.path == folder and not found.isdir for found in entries):
        raise NotADirectoryError(f"{folder} is a file, expected a folder")
    named = [(found.path.rpartition("/")[2], found) for found in entries if not found.isdir]
    return sorted(
        Version(int(name), found.length, found.modification_time) for name, found in named if is_version_name(name)
    )
