"""Restores a damaged Delta log to its last intact version, without deleting anything.

    checkpoint 40 damaged, entries 20 to 45 intact    the checkpoint is moved aside; readers use the previous one
    entry 43 damaged, 45 the newest                   43 to 45 are moved aside; the table is as it was at version 42
    entry 43 was planted: it names files elsewhere    43 alone is moved aside

An entry that is moved aside is replaced by one that changes nothing. Version numbers therefore never decrease, which
readers that follow the table rely on. Files are moved to `_damaged/<time>/` in the lake. Data files that only lost
entries name are moved first, because VACUUM would delete them.

If a repair is killed, the next one finishes it. Entries are replaced from the newest to the oldest damaged one, so the
log counts as damaged until all are done. Then a commit to `messages` records what was lost.

Entry 0 of a log defines the columns and adds no file. If it is damaged, it is created again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.atomic_files import open_atomic
from commitlake.connectors.lake.delta_log.check import (
    MAX_ENTRY_BYTES,
    MAX_MISSING,
    LogDamage,
    find_forged_entries,
    find_log_damage,
    find_missing_log,
    missing_versions,
)
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.delta_log.file_names import LOG, POINTER
from commitlake.connectors.lake.delta_log.files import LogFolder, LogListing, entry_name
from commitlake.connectors.lake.delta_log.newest_versions import delete_newest_version, read_newest_version
from commitlake.connectors.lake.delta_log.seals import expected_row_sum, newest_version, read_newest_seal, write_seal
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.schemas.safe_store_files import files_in, folders_in, make_folders, open_file, remove_file
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

ASIDE = "_damaged"
"""Folder in the lake for files that a repair has replaced."""
REPAIR_KEY = "commitlake.repair"
_UNDONE_KEY = "commitlake.undone"
_MARGIN_NS = 86_400_000_000_000
_BLOCK_BYTES = 8 << 20
_ID = re.compile(rb'"id\\?":\\?"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})')


@dataclass(frozen=True, slots=True)
class LogRepair:
    """Plan to repair the Delta log of one table.

    Attributes:
        table: name of the table in the lake.
        damages: damages that were found.
        aside: names of damaged checkpoints, and of the pointer to one, which are only moved aside.
        first: the oldest entry that is replaced; None if none is.
        last: the newest entry that is replaced.
        only_first: True if only entry `first` is replaced, because a checkpoint covers it.
        is_lost: True if no version is intact.
        writes_first: True if entry 0, which only defines the columns, is written again.
        undone: versions that no program of this lake writes, see `find_forged_entries`; they are replaced alone.
    """

    table: str
    damages: Sequence[LogDamage]
    aside: Sequence[str] = ()
    first: int | None = None
    last: int = -1
    only_first: bool = False
    is_lost: bool = False
    writes_first: bool = False
    undone: Sequence[int] = ()

    @property
    def versions(self) -> list[int]:
        """Versions of the table whose log entries are replaced, newest first."""
        found = set(self.undone)
        if self.first is not None:
            found |= {self.first} if self.only_first else set(range(self.first, self.last + 1))
        return sorted(found, reverse=True)

    @property
    def loses_versions(self) -> bool:
        """True if the repair loses the newest versions of the table."""
        return self.first is not None and not self.only_first


@dataclass
class ReplacedFiles:
    """Folder `_damaged/<time>` in the lake, to which a repair moves the files that it replaces.

    Attributes:
        lake: the lake.
        stamp: time of the repair, as text.
    """

    lake: Lake
    stamp: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))

    def __post_init__(self) -> None:
        self.files = self.lake.open_folder()

    @property
    def relative_path(self) -> str:
        """Path of the folder, relative to the lake."""
        return f"{ASIDE}/{self.stamp}"

    def copy_file(self, path: str) -> None:
        """Copy a file of the lake to the folder, if the file exists.

        Raises:
            UnsafeFileError: if a part of its path in the lake is a link.
        """
        try:
            if self.lake.s3 is None:
                self._copy_local_file(path)
                return
            with (
                self.files.open_input_stream(path, compression=None) as source,
                open_lake_storage(f"{self.lake.root}/{self.relative_path}", self.lake.s3).open_write(path) as output,
            ):
                while block := source.read(_BLOCK_BYTES):
                    output.write(block)
        except FileNotFoundError:
            return

    def move_file(self, path: str) -> None:
        """Move a file of the lake to the folder, if the file exists.

        Raises:
            UnsafeFileError: if a part of its path in the lake is a link.
        """
        # Copied, then deleted: a killed repair leaves the file in both places, but never in none.
        self.copy_file(path)
        if self.lake.s3 is None:
            with suppress(FileNotFoundError):
                remove_file(self._root / path, trusted_root=self._root)
        elif self.files.get_file_info(path).is_file:
            self.files.delete_file(path)

    def move_table(self, table: str) -> None:
        """Move all files of a table to the folder, and forget which version of the table was the newest.

        Raises:
            UnsafeFileError: if its folder is a link or contains one; then nothing is moved.
        """
        self._move_folder(table, table)

    def move_log(self, table: str) -> None:
        """Move the Delta log of a table to the folder, and forget which version of the table was the newest."""
        self._move_folder(f"{table}/{LOG}", table)

    def _move_folder(self, path: str, table: str) -> None:
        # The log is moved last: without it, the remaining files would be no table, and no repair would find them.
        for name in sorted(self._list_files(path), key=lambda name: (f"/{LOG}/" in f"/{name}", name)):
            self.move_file(name)
        delete_newest_version(self.lake.uri(table), self.lake.storage_options)

    @property
    def _root(self) -> Path:
        return Path(self.lake.root)

    def _list_files(self, path: str) -> Iterator[str]:
        """Yield the files in a folder of the lake, at any depth, relative to the lake."""
        if self.lake.s3 is not None:
            infos = self.files.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
            yield from (info.path for info in infos if info.is_file)
            return
        folder = self._root / path
        yield from (f"{path}/{name}" for name in files_in(folder, trusted_root=self._root))
        for name in folders_in(folder, trusted_root=self._root):
            yield from self._list_files(f"{path}/{name}")

    def _copy_local_file(self, path: str) -> None:
        target = self._root / self.relative_path / path
        with os.fdopen(open_file(self._root / path, trusted_root=self._root), "rb") as source:
            make_folders(target.parent, trusted_root=self._root)
            with open_atomic(target) as output:
                shutil.copyfileobj(source, output, _BLOCK_BYTES)


def plan_log_repair(lake: Lake, table: str) -> LogRepair | None:
    """Plan the repair of a table's Delta log; None if the log is intact or does not exist."""
    uri = lake.uri(table)
    try:
        folder = lake.open_log(table)
    except TableNotFoundError:  # no such folder
        gone = find_missing_log(read_newest_version(uri, lake.storage_options))
        return None if gone is None else LogRepair(table, [gone], is_lost=True)
    listing = folder.read_listing()
    damages = list(find_log_damage(folder, listing))
    planted = list(find_forged_entries(folder, listing))
    undone = {damage.version for damage in planted if damage.is_entry}
    known = {damage.name for damage in damages}
    damages += [damage for damage in planted if damage.name not in known]
    if not damages:
        return None
    if listing.newest_version < 0:
        return LogRepair(table, damages, is_lost=True)
    checkpoints = {damage.version for damage in damages if not damage.is_entry and damage.name != POINTER}
    aside = [file.name for version in checkpoints for file in listing.checkpoints.get(version, ())]
    if listing.has_pointer and (aside or any(damage.name == POINTER for damage in damages)):
        aside.append(POINTER)
    kept = {version: files for version, files in listing.checkpoints.items() if version not in checkpoints}
    rest = LogListing(listing.entries, kept, listing.seals, has_pointer=False)
    seal, _ = read_newest_seal(folder, listing)
    newest = newest_version(listing, seal)
    bad = {damage.version for damage in damages if damage.is_entry}
    bad |= {damage.version for damage in find_log_damage(folder, rest) if damage.is_entry}
    bad |= set(islice(missing_versions(rest, newest), MAX_MISSING))
    bad -= undone
    needed = sorted(version for version in bad if version > rest.checkpoint_version)
    if not needed:
        first = min(bad, default=None)
        return LogRepair(table, damages, aside, first, newest, only_first=first is not None, undone=sorted(undone))
    # If there is no checkpoint, entry 0 is the one that created the table. It added no file. Only a declared table's
    # columns are known.
    writes_first = needed[0] == 0 and min(rest.entries, default=0) <= 1 and table in LAKE_TABLES
    rest_of_needed = [version for version in needed if version > 0]
    if writes_first:
        first = rest_of_needed[0] if rest_of_needed else None
        return LogRepair(table, damages, aside, first, newest, writes_first=True, undone=sorted(undone))
    return LogRepair(table, damages, aside, needed[0], newest, is_lost=needed[0] <= 0, undone=sorted(undone))


def repair_log(
    aside_folder: ReplacedFiles,
    repair: LogRepair,
    note: dict[str, Any],
    kept_files: Collection[str] = (),
    write_added_files: Callable[[], Sequence[DataFile]] = tuple,
) -> None:
    """Restore a table's Delta log to its last intact version.

    Args:
        repair: from `plan_log_repair`; its `is_lost` must be False.
        note: written to the entries that replace others.
        kept_files: data files to keep although only lost versions have them.
        write_added_files: returns data files that the table gets with the last step of the repair, after which its log
            is intact.
    """
    lake = aside_folder.lake
    folder = lake.open_log(repair.table)
    # The pointer first, because Delta's readers fail on one without its checkpoint.
    for name in sorted(repair.aside, key=lambda name: name != POINTER):
        aside_folder.move_file(f"{repair.table}/{LOG}/{name}")
    if repair.writes_first:
        aside_folder.copy_file(f"{repair.table}/{LOG}/{entry_name(0)}")
        folder.write(entry_name(0), make_first_log_entry(repair.table, _read_or_empty(folder, entry_name(0))))
    if repair.loses_versions:
        for name in _files_of_lost_versions(aside_folder.lake, folder, repair):
            if name not in kept_files:
                aside_folder.move_file(f"{repair.table}/{name}")
    # Checkpoints of the lost versions hold lost data. Without them, readers read the entries.
    if repair.first is not None and not repair.only_first:
        listing = folder.read_listing()
        late = [
            file.name for version, files in listing.checkpoints.items() if version >= repair.first for file in files
        ]
        for name in [POINTER, *late] if late else []:  # Delta's readers fail on a pointer without its checkpoint
            aside_folder.move_file(f"{repair.table}/{LOG}/{name}")
    files = write_added_files() if repair.loses_versions else ()
    # The newest first, so that the log counts as damaged until the oldest is replaced.
    for version in repair.versions:
        aside_folder.copy_file(f"{repair.table}/{LOG}/{entry_name(version)}")
        replaced = {_UNDONE_KEY: version} if version in repair.undone else {REPAIR_KEY: note}
        folder.write(entry_name(version), _placeholder_entry(replaced, files if version == repair.first else ()))
    listing = folder.read_listing()
    row_sum = None if repair.loses_versions else expected_row_sum(folder, listing, read_newest_seal(folder, listing)[0])
    write_seal(folder, listing, row_sum, replaces_older_seals=True)


def _read_or_empty(folder: LogFolder, name: str) -> bytes:
    try:
        return folder.read(name)
    except FileNotFoundError:
        return b""


def _placeholder_entry(note: dict[str, Any], files: Sequence[DataFile]) -> bytes:
    now = time.time_ns() // 1_000_000
    metadata = json.dumps(note, sort_keys=True)
    info = {"timestamp": now, "operation": "REPAIR", "operationParameters": {}, "userMetadata": metadata}
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    for file in files:
        document = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": now}
        actions.append({"add": {**document, "dataChange": True, "stats": file.statistics}})
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def _files_of_lost_versions(lake: Lake, folder: LogFolder, repair: LogRepair) -> list[str]:
    """Return the data files that only lost versions of the table refer to.

    An unreadable entry does not name its files. Files written since the last intact version are taken to be its files.
    """
    assert repair.first is not None
    try:
        table = lake.table_at(repair.table, repair.first - 1)
    except DeltaError:
        return []
    kept = {unquote(path) for path in read_file_actions(table).column("path").to_pylist()}
    named: set[str] = set()
    for data in read_lost_entries(folder, repair.versions):
        named |= added_file_paths(data)
    since = _log_entry_time(folder, repair.first - 1) - _MARGIN_NS
    found = []
    for info in folder.filesystem.get_file_info(pafs.FileSelector("", recursive=True)):
        is_data = info.is_file and info.path.endswith(".parquet") and not info.path.startswith("_")
        if is_data and info.path not in kept and (info.path in named or (info.mtime_ns or 0) >= since):
            found.append(info.path)
    return sorted(found)


def read_lost_entries(folder: LogFolder, versions: Iterable[int]) -> Iterator[bytes]:
    """Yield the log entries of lost versions that still exist, unless larger than CommitLake writes."""
    entries = folder.list_entry_files().entries
    for version in versions:
        file = entries.get(version)
        if file is not None and file.size <= MAX_ENTRY_BYTES:
            yield folder.read(file.name)


def added_file_paths(entry: bytes) -> set[str]:
    """Return the paths of the data files that a Delta log entry adds; unreadable lines are skipped."""
    found = set()
    for line in entry.splitlines():
        try:
            found.add(unquote(parse_json(line)["add"]["path"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _log_entry_time(folder: LogFolder, version: int) -> int:
    file = folder.read_listing().entries.get(version)
    return file.mtime_ns if file else 0


def create_empty_table(folder: Path, table: str) -> DeltaTable:
    """Create one of the lake's tables, without rows, in a folder."""
    declared = LAKE_TABLES[table]
    schema = Schema.from_json(declared.columns.to_json())
    return DeltaTable.create(str(folder), schema, partition_by=list(declared.partitions))


def make_first_log_entry(table: str, damaged_entry: bytes = b"") -> bytes:
    """Return a new first entry (version 0) for a table's Delta log, with the table's old id if it is known.

    Args:
        table: name of the table.
        damaged_entry: remains of the damaged entry. If they hold the table's id, by which readers that follow it know
            it, it is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        create_empty_table(Path(folder), table)
        entry = (Path(folder) / LOG / entry_name(0)).read_bytes()
    known = _ID.search(damaged_entry)
    made = _ID.search(entry)
    return entry.replace(made[1], known[1]) if known and made else entry
