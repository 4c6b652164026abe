"""Files in HDFS that are replaced on a condition: folders whose files are the versions, named by their numbers.

    shipped/log.json/00000000000000000017      the newest version is the content
    shipped/log.json/00000000000000000016      the one before it, for readers that have just listed the folder

HDFS can rename a file to a name that does not exist yet, which only one of two processes can do, but it cannot compare
a file and replace it. So a new version is a rename to the next number: it succeeds only if no other process has written
that version. Old versions are deleted, so a process that has slept for long can still create one of a number that
existed once. It has no effect: the largest number counts, versions are deleted only below a larger one, and the process
that created the version finds the larger one when it lists the folder afterwards.
"""

from __future__ import annotations

from commitlake.connectors.object_store.hdfs_clients import HdfsClient

_DIGITS = 20


def version_path(folder: str, number: int) -> str:
    """Return the path of a version.

    >>> version_path("/copy/shipped/log.json", 17)
    '/copy/shipped/log.json/00000000000000000017'
    """
    return f"{folder}/{number:0{_DIGITS}d}"


def list_versions(client: HdfsClient, folder: str) -> list[int]:
    """Return the numbers of the versions that exist, in order; none if the folder does not exist."""
    try:
        names = [found.path.rpartition("/")[2] for found in client.list(folder) if not found.isdir]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal())
