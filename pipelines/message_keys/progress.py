"""How far `message_keys` has followed `messages`, and what it lacks yet; also for look-ups, which start at once."""

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
"""The values of the column `kind`."""


def followed_version(lake: LakePaths) -> int:
    """The version of `messages` to which `message_keys` has come; -1 before the first."""
    try:
        version = delta_table(lake.message_keys, lake.s3).transaction_version(APPLICATION_ID)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version


def followed_erasure(lake: LakePaths) -> int:
    """The number of the newest erasure that `message_keys` is done with; 0 for none."""
    try:
        return erasure_number(delta_table(lake.message_keys, lake.s3))
    except TableNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What `message_keys` lacks of `messages`.

    Attributes:
        files: data files of `messages`.
        version: of `messages`, to which these files lead.
        anew: whether they are all of `messages`, because what is new alone can no longer be read.
    """

    files: Sequence[AddedFile]
    version: int
    anew: bool = False


def readable_files(lake: LakePaths, after: int) -> NewFiles:
    """What is new behind a version; where its files, or the log's, are gone, all that there is.

    Files go by a vacuum after a compaction, which wrote their rows into others: a follower that stayed away longer
    than `maintain --vacuum-after` begins anew.
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
    """The data files of `messages` behind a version, and its newest version; they may be gone.

    Raises:
        VersionsError: where the log no longer tells, or rows were changed.
    """
    options = storage_options(lake.messages, lake.s3)
    if after < 0:  # what is there now: earlier versions may have had files that were taken out since
        whole = snapshot_files(lake.messages, options)
        return list(whole.files), whole.version
    files: list[AddedFile] = []
    newest = after
    for version in added_versions(lake.messages, after, options):
        newest = version.version
        if version.is_erasure:  # its rows are not new, and who reads an older file leaves out what was erased
            continue
        if version.files:
            version.check_append_only()
        files += version.files
    return files, newest
