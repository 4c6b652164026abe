"""Checks of a Delta table's log for damage.

    LogDamagedError: /data/lake/messages: entry 7 of the log, _delta_log/00000000000000000007.json, is damaged: expected
    2,511 bytes with SHA-256 4c31…, found 0 bytes. …

Every job opens tables with `connectors.lake.delta`, which calls this module, so no result comes from a damaged log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta_log.checkpoint_check import (
    added_paths,
    find_checkpoint_fault,
    may_be_huge_checkpoint,
)
from commitlake.connectors.lake.delta_log.entries import OUTSIDE, find_action_fault, parse_json
from commitlake.connectors.lake.delta_log.file_names import LOG, POINTER
from commitlake.connectors.lake.delta_log.files import LogFile, LogFolder, LogListing, entry_name
from commitlake.connectors.lake.delta_log.newest_versions import read_newest_version
from commitlake.connectors.lake.delta_log.seals import (
    Seal,
    compute_file_digest,
    expected_row_sum,
    list_needed_files,
    newest_version,
    read_newest_seal,
    write_seal,
)
from commitlake.connectors.lake.delta_log.versions import StorageOptions
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int64

WAY_OUT = (
    "'commitlake maintain --lake LAKE --repair --dry-run' shows what can be recovered, and without --dry-run recovers "
    "it"
)

_MAX_LISTINGS = 20
_MAX_FOOTERS = 1000
MAX_ENTRY_BYTES = 128 << 20
"""Largest entry of another program that is read. Entries of this project are sealed, and may be larger: an archive run
writes some 5 KB for each data file. Delta's readers need 90 ms and 5 MB of memory for each MB."""
MAX_MISSING = 1000
"""Largest number of reported missing entries; a forged note of the newest version could cause very many."""


class LogDamagedError(LakeError):
    """A table's log is damaged; the message is for a user."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Damage of one file of a log.

    Attributes:
        name: name of the file.
        version: the version of the entry or checkpoint.
        reason: what was expected, and what was found.
        is_entry: whether it is an entry of the log; if not, a checkpoint, or the pointer to one.
    """

    name: str
    version: int
    reason: str
    is_entry: bool = True

    def __str__(self) -> str:
        kind = "entry" if self.is_entry else "checkpoint"
        return f"{kind} {self.version} of the log, {LOG}/{self.name}: {self.reason}"


def check_log(table_uri: str, storage_options: StorageOptions = None) -> LogListing:
    """Refuse a table whose log is damaged; return the files of the log.

    Raises:
        LogDamagedError: if the log is damaged.
    """
    try:
        folder = LogFolder(table_uri, storage_options)
    except TableNotFoundError:  # the folder does not exist
        listing, damage = LogListing(), find_missing_log(read_newest_version(table_uri, storage_options))
    else:
        listing = folder.read_listing()
        damage = next(find_log_damage(folder, listing), None)
    if damage is not None:
        raise log_damaged_error(table_uri, damage)
    return listing


def check_log_sizes(table_uri: str, storage_options: StorageOptions, listing: LogListing) -> None:
    """Refuse a log with a huge entry or checkpoint, before a reader spends much time parsing it.

    Raises:
        LogDamagedError: if the log is damaged.
    """
    # Only what a reader parses: the newest checkpoint, and the entries after it.
    checkpoint = listing.checkpoints.get(listing.checkpoint_version, ())
    entries = (file for file in listing.entries.values() if file.version > listing.checkpoint_version)
    if any(file.size > MAX_ENTRY_BYTES for file in (*entries, *checkpoint)) or any(
        _may_be_huge_log_file(table_uri, storage_options, file) for file in checkpoint
    ):
        check_log(table_uri, storage_options)


_checked_footers: dict[tuple[str, str, int, int], bool] = {}
"""Results by table, name, size and time, which identify a file that is never changed.

They hold for every `Lake` of the process: a run opens the same table repeatedly, and `metrics` for each scrape.
"""


def _may_be_huge_log_file(table_uri: str, storage_options: StorageOptions, file: LogFile) -> bool:
    key = (table_uri, file.name, file.size, file.mtime_ns)
    if key not in _checked_footers:
        if len(_checked_footers) > _MAX_FOOTERS:
            _checked_footers.clear()
        try:
            with LogFolder(table_uri, storage_options).open(file.name) as source:
                _checked_footers[key] = may_be_huge_checkpoint(pq.ParquetFile(source))
        except (pa.ArrowException, OSError):  # a reader finds the same damage, or it is JSON
            return False
    return _checked_footers[key]


def find_missing_log(newest_version: int) -> LogDamage | None:
    """Return the damage to report for a table whose log is missing; None if the table never had a log.

    Args:
        newest_version: the newest known version of the table; -1 for none.
    """
    if newest_version < 0:
        return None
    return LogDamage(
        entry_name(newest_version), newest_version, f"expected versions up to {newest_version:,}, found no log at all"
    )


def log_damaged_error(table_uri: str, damage: LogDamage) -> LogDamagedError:
    """Return the error that reports a damaged file."""
    return LogDamagedError(f"{table_uri}: {damage}. {WAY_OUT}")


def seal_log(table_uri: str, storage_options: StorageOptions = None, s3: S3Options | None = None) -> None:
    """Store checksums of a log's files in a new file, the seal, unless the newest seal is current.

    Args:
        table_uri: path or URI of the table.
        storage_options: deltalake's options for an object store.
        s3: the object store to write to; by default that of the environment.

    Raises:
        LogDamagedError: if the log is damaged.
    """
    folder = LogFolder(table_uri, storage_options, s3)
    listing = folder.read_listing()
    seal, _ = read_newest_seal(folder, listing)
    # The seal is current, so nothing has to be read. Only the note of the version may be missing, if the last writer
    # was killed between the two.
    if seal is not None and (seal.version, seal.base) == (listing.newest_version, listing.checkpoint_version):
        if listing.noted < listing.newest_version:
            folder.record_newest_version(listing.newest_version)
        if listing.noted <= listing.newest_version:
            return
    # Damage must not be sealed: a seal would make it the truth.
    damage = next(find_log_damage(folder, listing, wrote_newest_entries=True), None)
    if damage is not None:
        raise log_damaged_error(table_uri, damage)
    write_seal(folder, listing, expected_row_sum(folder, listing, seal))


def find_log_damage(
    folder: LogFolder, listing: LogListing | None = None, *, wrote_newest_entries: bool = False
) -> Iterator[LogDamage]:
    """Yield the damage in the log files that a reader of the newest version needs, oldest first.

    If a writer deletes files or adds a checkpoint during the check, that is not damage: the log is listed again until
    it does not change during the check.

    Args:
        listing: its files; by default they are listed.
        wrote_newest_entries: True if this process has written the newest entries, which may then have any size.
    """
    for attempt in count():
        listing = listing or folder.read_listing()
        seal, _ = read_newest_seal(folder, listing)
        try:
            found = [
                *_find_missing_entries(listing, seal),
                *_find_changed_files(folder, listing, seal, wrote_newest_entries=wrote_newest_entries),
            ]
            found += _find_lost_checkpoint(folder, listing)
        except FileNotFoundError:
            # Still listed but not there: no cleanup, but an error.
            if folder.read_listing() == listing:
                raise
            listing = None
            continue
        # Another writer's work looks like damage while it lasts, so a finding counts only if the log stayed as it is.
        if found and attempt < _MAX_LISTINGS and folder.read_listing() != listing:
            listing = None
            continue
        yield from sorted(found, key=lambda damage: damage.version)
        return


def _find_missing_entries(listing: LogListing, seal: Seal | None) -> Iterator[LogDamage]:
    """Yield a `LogDamage` for each missing log entry."""
    newest = newest_version(listing, seal)
    if listing.newest_version < 0:
        gone = find_missing_log(newest)
        if gone is not None:
            yield gone
        return
    for version in islice(missing_versions(listing, newest), MAX_MISSING):
        yield LogDamage(entry_name(version), version, f"expected versions up to {newest}, found no such file")
    if seal is not None and seal.base > listing.checkpoint_version:
        # With the log back to version 0, a reader does not need the checkpoint.
        for name in seal.files:
            if ".checkpoint." in name and 0 not in listing.entries:
                yield LogDamage(name, seal.base, "expected a checkpoint, found no such file", is_entry=False)


def missing_versions(listing: LogListing, newest_version: int) -> Iterator[int]:
    """Yield the versions whose log entries are missing although readers need them, oldest first."""
    return (
        version
        for version in range(listing.checkpoint_version + 1, newest_version + 1)
        if version not in listing.entries
    )


def _find_changed_files(
    folder: LogFolder, listing: LogListing, seal: Seal | None, *, wrote_newest_entries: bool
) -> Iterator[LogDamage]:
    """Yield a `LogDamage` for each log file that has changed or cannot be read."""
    sealed = seal.files if seal else {}
    for file in list_needed_files(listing):
        is_entry = file.version in listing.entries and listing.entries[file.version] == file
        if is_entry and file.version == listing.checkpoint_version and file.name not in sealed:
            continue  # readers need only the checkpoint
        if file.name in sealed:
            size, digest = sealed[file.name]
            reason = ""
            # The size is known from the listing, so only a file of the right size is read.
            if file.size != size:
                reason = f"expected {size:,} bytes, found {file.size:,}"
            elif compute_file_digest(folder, file) != digest:
                reason = f"its bytes were changed: expected SHA-256 {digest[:16]}…, found another"
        elif not wrote_newest_entries and file.size > MAX_ENTRY_BYTES:
            reason = f"expected at most {MAX_ENTRY_BYTES:,} bytes, found {file.size:,}: another program has written it"
        else:
            data = folder.read(file.name)
            is_parquet = file.name.endswith(".parquet")
            reason = (
                find_checkpoint_fault(data, is_written_by_us=wrote_newest_entries)
                if is_parquet
                else find_entry_fault(data)
            )
        if reason:
            yield LogDamage(file.name, file.version, reason, is_entry)


def _find_lost_checkpoint(folder: LogFolder, listing: LogListing) -> Iterator[LogDamage]:
    """Yield a `LogDamage` if `_last_checkpoint` names a missing checkpoint, because readers would fail."""
    if not listing.has_pointer:
        return
    found = re.search(rb'"version"\s*:\s*(\d+)', folder.read(POINTER))
    if not found:
        return
    version = parse_int64(str(found[1], "ascii"))
    if version is None or version > listing.checkpoint_version:
        reason = f"expected the version of an existing checkpoint, found {str(found[1][:40], 'ascii')}"
        yield LogDamage(POINTER, INT64_MAX if version is None else version, reason, is_entry=False)


def find_entry_fault(data: bytes) -> str:
    """Return the reason why bytes are not an entry of a log; empty for a valid entry."""
    if not data.strip():
        return f"expected lines of JSON, found {'nothing' if not data else f'{len(data):,} blank bytes'}"
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            reason = find_action_fault(parse_json(line))
        except ValueError as error:
            reason = f"expected JSON ({error})" if "digits" in str(error) or "nested" in str(error) else "expected JSON"
        if reason:
            return f"line {number}: {reason}, found {line[:40]!r}{'…' if len(line) > 40 else ''}"
    return ""


def find_forged_entries(folder: LogFolder, listing: LogListing) -> Iterator[LogDamage]:
    """Yield log entries, and parts of the newest checkpoint, with content that no program of this lake writes.

    They name files outside of the table's folder, or have statistics that are none. A reader of the newest version may
    not need them any more, but followers read each entry.
    """
    for version, file in sorted(listing.entries.items()):
        reason = _explain_forged_entry(folder, file) if file.size <= MAX_ENTRY_BYTES else ""
        if reason:
            yield LogDamage(file.name, version, reason)
    for file in listing.checkpoints.get(listing.checkpoint_version, ()):
        outside = _find_outside_path(folder, file)
        if outside is not None:
            yield LogDamage(file.name, file.version, f"expected files of this table, found {outside[:200]!r}", False)


def _explain_forged_entry(folder: LogFolder, file: LogFile) -> str:
    try:
        data = folder.read(file.name)
    except FileNotFoundError:  # deleted by a cleanup meanwhile
        return ""
    for line in data.splitlines():
        try:
            reason = find_action_fault(parse_json(line)) if line.strip() else ""
        except ValueError:  # see find_damage
            continue
        if reason:
            return reason
    return ""


def _find_outside_path(folder: LogFolder, file: LogFile) -> str | None:
    if not file.name.endswith(".parquet"):
        return None
    return next(filter(OUTSIDE.search, added_paths(folder.read(file.name))), None)
