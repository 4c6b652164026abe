"""VACUUM, checkpoints and deletion of old log entries, with checks that nothing needed is deleted.

Two things must survive. The archive's progress is only in the metadata of its newest commit, so a log is cleaned only
while that entry is younger than the log's retention. And a run that was killed after its commit has left files that the
commit names for other tables; until the next run has added them, those tables are not vacuumed.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import ArchiveCommit
from commitlake.connectors.lake.delta_log.file_names import LOG, POINTER
from commitlake.connectors.lake.delta_log.files import LogFolder
from commitlake.connectors.lake.delta_log.history import read_history
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import check_table_links
from commitlake.pipelines.maintenance.file_replacement import NO_HOOKS
from commitlake.schemas.layouts.integer_parsing import parse_int, parse_int64
from commitlake.schemas.times import from_ms

SHORTEST_RETENTION = datetime.timedelta(days=1)
"""Shortest retention: runs must commit their files, and readers finish with a version, within this time."""
_LOG_RETENTION = "delta.logRetentionDuration"
_DEFAULT_LOG_RETENTION = datetime.timedelta(days=30)
_MAX_INTERVAL = 10**8
"""Largest number in an interval, in any unit; that many weeks still fit a time."""
_INTERVAL = re.compile(r"interval\s+(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_MARGIN = datetime.timedelta(days=1)
_VERSIONS_A_CHECKPOINT = 10


@dataclass(frozen=True, slots=True)
class VacuumableFiles:
    """Number and size of the files that VACUUM would delete."""

    count: int = 0
    bytes: int = 0


def find_vacuumable_files(lake: Lake, table: str, retention: datetime.timedelta) -> VacuumableFiles:
    """Return the number and size of the data files that VACUUM would delete from a table.

    Raises:
        UnsafeFileError: if the table's folder is a link or contains one.
    """
    check_table_links(lake.uri(table))  # deltalake would delete what a link leads to
    names = lake.table(table).vacuum(
        _to_whole_hours(retention), dry_run=True, enforce_retention_duration=False, full=True
    )
    files = lake.open_folder(table)
    # Files that left the table may have been deleted already.
    sizes = [info.size for info in files.get_file_info(names) if info.is_file] if names else []
    return VacuumableFiles(len(sizes), sum(sizes))


def vacuum(lake: Lake, table: str, retention: datetime.timedelta, *, is_only_user: bool = False) -> None:
    """Delete data files that no version within the retention refers to, and unfinished files of killed writers.

    Args:
        table: name of the table.
        retention: younger files are kept; at least `SHORTEST_RETENTION`.
        is_only_user: True if no other process writes or reads the table; the retention may then be shorter.

    Raises:
        UnsafeFileError: if the table's folder is a link or contains one.
    """
    if retention < SHORTEST_RETENTION and not is_only_user:
        raise ValueError(f"expected a retention of the table's log of at least {SHORTEST_RETENTION}, found {retention}")
    check_table_links(lake.uri(table))  # deltalake would delete what a link leads to
    lake.table(table).vacuum(
        _to_whole_hours(retention),
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
        post_commithook_properties=NO_HOOKS,
    )
    lake.seal_log(table)


def _to_whole_hours(duration: datetime.timedelta) -> int:
    return int(duration.total_seconds() // 3600)


def write_checkpoint(lake: Lake, table: str) -> bool:
    """Write a checkpoint if there are ten versions since the last one, and return whether it did."""
    check_table_links(lake.uri(table))
    opened = lake.table(table)
    if opened.version() - _last_checkpoint_version(lake, table) < _VERSIONS_A_CHECKPOINT:
        return False
    opened.create_checkpoint()
    lake.seal_log(table)
    return True


def _last_checkpoint_version(lake: Lake, table: str) -> int:
    files = lake.open_folder(table)
    try:
        with files.open_input_stream(f"{LOG}/{POINTER}") as pointer:
            found = re.search(rb'"version"\s*:\s*(\d+)', pointer.readall())
    except FileNotFoundError:
        return 0
    return (parse_int64(str(found[1], "ascii")) or 0) if found else 0


def delete_old_log_entries(lake: Lake, table: str, now: datetime.datetime) -> str:
    """Delete log entries that a checkpoint covers and that are older than the log's retention.

    Args:
        table: name of the table.
        now: current time.

    Returns:
        The reason why nothing was deleted, or an empty string.
    """
    opened = lake.table(table)
    retention = _log_retention(opened)
    if retention is None:
        return f"{_LOG_RETENTION} of {lake.uri(table)} cannot be parsed, so its log was not cleaned"
    newest = _newest_archive_commit_time(lake.open_log(table), opened.version())
    if newest is not None and newest < now - retention + _MARGIN:
        return (
            f"the log of {lake.uri(table)} was not cleaned, because the archive's progress is only in a commit of "
            f"{newest:%Y-%m-%d}. Run 'commitlake archive', which writes a new one"
        )
    opened.cleanup_metadata()
    return ""


def _log_retention(table: DeltaTable) -> datetime.timedelta | None:
    text = table.metadata().configuration.get(_LOG_RETENTION)
    if text is None:
        return _DEFAULT_LOG_RETENTION
    found = _INTERVAL.fullmatch(text.strip())
    number = parse_int(found[1], 0, _MAX_INTERVAL) if found else None
    return datetime.timedelta(**{f"{found[2].lower()}s": number}) if found and number is not None else None


def _newest_archive_commit_time(log: LogFolder, newest_version: int) -> datetime.datetime | None:
    for entry in read_history(log, newest_version):
        if ArchiveCommit.from_metadata(entry.metadata) is not None:
            return from_ms(entry.timestamp_ms)
    return None
