"""How far `message_keys` has followed `messages`, and what it lacks yet; also for look-ups, which start at once."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from connectors.lake.delta import delta_table, storage_options
from connectors.lake.paths import LakePaths
from connectors.lake.versions import AddedFile, VersionGoneError, added_versions, snapshot_files

APPLICATION_ID = "commitlake.message_keys"
BUSINESS_KEY = "key"
UNIQUE_KEY = "unique_key"
"""The values of the column `kind`."""


def followed_version(lake: LakePaths) -> int:
    """The version of `messages` to which `message_keys` has come; -1 before the first."""
    try:
        version = delta_table(lake.message_keys, lake.s3).transaction_version(APPLICATION_ID)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version


def new_files(lake: LakePaths, after: int) -> tuple[list[AddedFile], int]:
    """The data files of `messages` behind a version, and its newest version."""
    files: list[AddedFile] = []
    newest = after
    options = storage_options(lake.messages, lake.s3)
    try:
        for version in added_versions(lake.messages, after, options):
            if version.files:
                version.check_append_only()
            files += version.files
            newest = version.version
    except VersionGoneError:
        if after >= 0:
            raise
        whole = snapshot_files(lake.messages, options)
        return list(whole.files), whole.version
    return files, newest
