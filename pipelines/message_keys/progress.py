"""Progress of `message_keys` in following `messages`; imports little, so that look-ups start quickly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import delta_table, storage_options
from commitlake.connectors.lake.erasures import erasure_number
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.versions import (
    AddedFile,
    AddedVersion,
    VersionGoneError,
    added_versions,
    snapshot_files,
    table_files,
)

APPLICATION_ID = "commitlake.message_keys"
BUSINESS_KEY = "key"
UNIQUE_KEY = "unique_key"
"""Values of the column `kind`."""


def followed_version(lake: LakePaths) -> int:
    """Return the version of `messages` that `message_keys` has reached; -1 before the first."""
    try:
        version = delta_table(lake.message_keys, lake.s3).transaction_version(APPLICATION_ID)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version


def followed_erasure(lake: LakePaths) -> int:
    """Return the number of the newest erasure that is complete in `message_keys`; 0 for none."""
    try:
        return erasure_number(delta_table(lake.message_keys, lake.s3))
    except TableNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Data files of `messages` that `message_keys` lacks.

    Attributes:
        files: data files of `messages`.
        version: version of `messages` that is reached with these files.
        anew: True if these are all files of `messages`, because new files alone can no longer be read.
    """

    files: Sequence[AddedFile]
    version: int
    anew: bool = False


def readable_files(lake: LakePaths, after: int) -> NewFiles:
    """Return the new files after a version, or all files if new ones, or entries of the log, no longer exist.

    Files are deleted by a vacuum after a compaction has written their rows to others. A follower that was not run for
    longer than `maintain --vacuum-after` starts again.
    """
    options = storage_options(lake.messages, lake.s3)
    try:
        files, newest = new_files(lake, after)
    except VersionGoneError:
        whole = snapshot_files(lake.messages, options)
        return NewFiles(whole.files, whole.version, anew=True)
    whole = snapshot_files(lake.messages, options) if files else AddedVersion(newest, ())
    replaced = sorted({file.name for file in files} - {file.name for file in whole.files})
    found = table_files(lake.messages, options).get_file_info(replaced) if replaced else []
    if any(info.type == pafs.FileType.NotFound for info in found):
        return NewFiles(whole.files, whole.version, anew=True)
    return NewFiles(files, newest)


def new_files(lake: LakePaths, after: int) -> tuple[list[AddedFile], int]:
    """Return the data files of `messages` after a version, and its newest version; files may no longer exist.

    Raises:
        VersionsError: if the log no longer has these versions, or rows were changed.
    """
    options = storage_options(lake.messages, lake.s3)
    if after < 0:  # the current files: earlier versions may have had files that were removed since
        whole = snapshot_files(lake.messages, options)
        return list(whole.files), whole.version
    files: list[AddedFile] = []
    newest = after
    for version in added_versions(lake.messages, after, options):
        newest = version.version
        if version.is_erasure:  # its rows are not new, and readers of an older file leave out erased messages
            continue
        if version.files:
            version.check_append_only()
        files += version.files
    return files, newest
