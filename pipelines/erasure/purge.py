"""Purges erasures: deletes older versions of tables, old entries of their logs, and unused files.

Until a purge, older versions can still be read in their original state. For each table, a purge cleans:

    data files        files that are not in the newest version are deleted (VACUUM)
    checkpoints       a checkpoint of the newest version is written; older ones are deleted
    log entries       minimum and maximum of columns, which may be keys, are removed from entries before the checkpoint;
                      the archive's progress in commits of runs is kept
    `_damaged`        files that repairs moved aside are deleted

Packs that no row refers to, and unfinished packs, are deleted as well. A run may be killed at any point: the
next one repeats all of it.
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from commitlake.connectors.lake.archive_commits import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.file_names import LOG, POINTER, SEALS
from commitlake.connectors.lake.delta_log.files import LogFolder, LogListing, entry_name
from commitlake.connectors.lake.delta_log.row_sum_changes import STATISTICS_KEY
from commitlake.connectors.lake.delta_log.seals import expected_row_sum, read_newest_seal, write_seal
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.paths import check_folder_links, check_table_links
from commitlake.pipelines.maintenance.expiry import delete_packs, measure_files
from commitlake.pipelines.maintenance.log_cleanup import find_vacuumable_files, vacuum
from commitlake.pipelines.maintenance.pack_merging import find_orphan_packs
from commitlake.pipelines.repair.delta_log import ASIDE
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.times import from_seconds

_VERSION = re.compile(r"\.?(\d{20})\.")
_UNFINISHED = re.compile(r"\.tmp$|#\d+$")
"""Names of temporary files of deltalake and of the object stores' library."""


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """Numbers and sizes of files of older table versions that were deleted, or would be deleted.

    Attributes:
        files: number of data files that no version needs.
        file_bytes: size of these files.
        packs: number of packs that no row refers to.
        pack_bytes: size of these packs.
        entries: number of log entries that were rewritten.
        checkpoints: number of files of logs that were deleted.
        aside: number of files that repairs had moved aside.
    """

    files: int = 0
    file_bytes: int = 0
    packs: int = 0
    pack_bytes: int = 0
    entries: int = 0
    checkpoints: int = 0
    aside: int = 0


def purge_old_versions(
    lake: Lake,
    retention: datetime.timedelta,
    now: datetime.datetime,
    *,
    is_only_user: bool = False,
) -> PurgeResult:
    """Delete files of older table versions, which may still have erased data, and return what was deleted.

    Args:
        retention: files that left the table, or were written, more recently than this are kept.
        now: current time.
        is_only_user: True if no other process is running; the retention may then be less than a day.

    Raises:
        UsageError: if an archive run is unfinished: its commit refers to files that no table has yet.
        UnsafeFileError: if the lake contains a link.
    """
    lake.check_links()
    last = read_last_commit(lake)
    # Its data files for other tables are written, but not committed yet, so a vacuum might delete them.
    if last is not None and unfinished_commits(lake, last.sequence):
        raise UsageError(
            f"archive run {last.sequence} of {lake.root} is not finished, and data that it has written might be "
            "deleted. Run 'commitlake archive' first, then this command again"
        )
    purged = PurgeResult()
    for table in (*LAKE_TABLES, *lake.list_topic_tables()):
        if lake.find(table) is None:
            continue
        garbage = find_vacuumable_files(lake, table, retention)
        if garbage.count:
            vacuum(lake, table, retention, is_only_user=is_only_user)
        entries, checkpoints = strip_log_statistics(lake, table, now - retention)
        purged = replace(
            purged,
            files=purged.files + garbage.count,
            file_bytes=purged.file_bytes + garbage.bytes,
            entries=purged.entries + entries,
            checkpoints=purged.checkpoints + checkpoints,
        )
    purged = _purge_packs(lake, last or ArchiveCommit(0, ""), retention, now, purged)
    return replace(purged, aside=_delete_moved_files(lake, now - retention))


def _purge_packs(
    lake: Lake,
    last_commit: ArchiveCommit,
    min_age: datetime.timedelta,
    now: datetime.datetime,
    purged_so_far: PurgeResult,
) -> PurgeResult:
    store = open_pack_store(lake.packs)
    orphans = find_orphan_packs(
        store, lake, store.list_packs(), last_commit.stores, now, min_age, age_range=datetime.timedelta.max
    )
    delete_packs(store, orphans)
    store.delete_unfinished_packs(now - min_age)
    found = measure_files(orphans)
    return replace(purged_so_far, packs=found.count, pack_bytes=found.bytes)


def strip_log_statistics(lake: Lake, table_name: str, cutoff: datetime.datetime) -> tuple[int, int]:
    """Write a checkpoint of a table's Delta log, and remove column statistics from the older log entries.

    Args:
        table_name: name of the table.
        cutoff: unfinished files of the log that are older than this are deleted.

    Returns:
        The number of entries that were rewritten, and of other files of the log that were deleted.
    """
    check_table_links(lake.uri(table_name))
    table = lake.table(table_name)
    table.create_checkpoint()
    folder = lake.open_log(table_name)
    listing = folder.read_listing()
    base = listing.checkpoint_version
    # Entries may only be changed if no reader needs them to get to the newest version.
    if base < table.version():
        raise UsageError(
            f"{lake.uri(table_name)}: expected a checkpoint of the newest version {table.version()} in the table's "
            f"log, found one of version {base}: run the command again"
        )
    row_sum = expected_row_sum(folder, listing, read_newest_seal(folder, listing)[0])
    write_seal(folder, listing, row_sum, replaces_older_seals=True)  # from now on no seal covers the entries before it
    entries = sum(_strip_log_entry(folder, version) for version in sorted(listing.entries) if version < base)
    return entries, _delete_old_log_files(folder, listing, cutoff)


def _strip_log_entry(folder: LogFolder, version: int) -> bool:
    name = entry_name(version)
    data = folder.read(name)
    lines = [_strip_line(line) for line in data.splitlines()]
    stripped = b"\n".join(lines) + b"\n"
    # The same lines with another line end: nothing to strip.
    if stripped == data or lines == data.splitlines():
        return False
    folder.write(name, stripped)
    # Hadoop would refuse an entry that does not fit the checksum beside it.
    folder.delete(f".{name}.crc")
    return True


def _strip_line(line: bytes) -> bytes:
    """Return a line of a log entry without the minimum and maximum values of columns."""
    try:
        action = parse_json(line)
    except ValueError:  # no reader uses it any more
        return line
    if not isinstance(action, dict):
        return line
    changed = False
    for kind in ("add", "remove"):
        file = action.get(kind)
        if isinstance(file, dict) and isinstance(file.get("stats"), str):
            stats = _strip_statistics(file["stats"])
            changed |= stats != file["stats"]
            file["stats"] = stats
    info = action.get("commitInfo")
    if isinstance(info, dict) and isinstance(info.get("userMetadata"), str):
        metadata = _remove_statistics(info["userMetadata"])
        changed |= metadata != info["userMetadata"]
        info["userMetadata"] = metadata
    return json.dumps(action, ensure_ascii=False, separators=(",", ":")).encode() if changed else line


def _strip_statistics(stats: str) -> str:
    try:
        found = parse_json(stats)
        kept = {name: found[name] for name in ("numRecords", STATISTICS_KEY) if found.get(name) is not None}
    except (ValueError, AttributeError):
        kept = {}
    return json.dumps(kept, separators=(",", ":"))


def _remove_statistics(metadata: str) -> str:
    """Return the metadata of an archive commit without minimum and maximum values of its files."""
    commit = ArchiveCommit.from_metadata(metadata)
    if commit is None:
        return metadata
    files: dict[str, Any] = {
        table: [replace(file, statistics=_strip_statistics(file.statistics)) for file in found]
        for table, found in commit.files.items()
    }
    return metadata if files == commit.files else replace(commit, files=files).to_metadata()


def _delete_old_log_files(folder: LogFolder, listing: LogListing, cutoff: datetime.datetime) -> int:
    """Delete a Delta log's old checkpoints, Spark checksums and unfinished files; log entries and seals stay.

    These are checkpoints, and checksums of Spark, which may have the data of a checkpoint. Returns the number of files.
    """
    count = 0
    for info in folder.filesystem.get_file_info(pafs.FileSelector(LOG, recursive=True, allow_not_found=True)):
        name = info.path.removeprefix(f"{LOG}/")
        if not info.is_file or info.path.startswith(SEALS) or name == POINTER:
            continue
        named = _VERSION.match(info.base_name)
        if named is None:
            # A young unfinished file may be of a writer that is still running.
            is_wanted = _UNFINISHED.search(info.base_name) is None or _modification_time(info) > cutoff
        elif name in {file.name for file in listing.entries.values()}:
            is_wanted = True
        else:
            is_wanted = int(named[1]) >= listing.checkpoint_version and not (
                _UNFINISHED.search(name) and _modification_time(info) <= cutoff
            )
        if not is_wanted:
            folder.delete(name)
            count += 1
    return count


def _modification_time(info: pafs.FileInfo) -> datetime.datetime:
    return from_seconds((info.mtime_ns or 0) / 1e9)


def _delete_moved_files(lake: Lake, cutoff: datetime.datetime) -> int:
    """Delete files that repairs moved aside, and return their number."""
    if lake.s3 is None:
        check_folder_links(Path(lake.root) / ASIDE)
    files = lake.open_folder()
    infos = files.get_file_info(pafs.FileSelector(ASIDE, recursive=True, allow_not_found=True))
    old = [info for info in infos if info.is_file and _modification_time(info) <= cutoff]
    for info in old:
        files.delete_file(info.path)
    return len(old)
