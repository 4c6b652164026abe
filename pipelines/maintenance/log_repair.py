"""Bringing a damaged Delta log back to its last whole version, without deleting anything.

    checkpoint 40 damaged, entries 20 to 45 whole     the checkpoint goes aside: readers take the one before it
    entry 43 damaged, 45 the newest                   43 to 45 go aside, and the table is as it was at 42

What takes the place of an entry is an entry that changes nothing. So version numbers only grow, and who follows the
table by version is not confused. Files go to `_damaged/<time>/` in the lake. Data files that only the lost entries name
go there first: VACUUM would delete them.

A repair that is killed is finished by the next one: entries are replaced from the newest to the oldest damaged one,
which keeps the log damaged until all are done, and `messages` then says by a commit of its own what was lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.log_check import MAX_MISSING, LogDamage, find_damage, missing_log, missing_versions
from commitlake.connectors.lake.log_files import LOG, POINTER, LogFolder, LogListing, entry_name
from commitlake.connectors.lake.log_seals import newest_seal, newest_version, write_seal
from commitlake.connectors.lake.newest_versions import read_newest
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.versions import table_files
from commitlake.connectors.object_store.access import write_object
from commitlake.connectors.whole_files import write_whole
from commitlake.pipelines.maintenance.first_entry import first_entry

ASIDE = "_damaged"
"""Folder of a lake for what a repair has replaced."""
REPAIR_KEY = "commitlake.repair"
_MARGIN_NS = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class LogRepair:
    """What is to be done to one table's log.

    Attributes:
        table: its name in the lake.
        damages: what was found.
        aside: names of checkpoints, and the pointer to one, that only go aside.
        first: the oldest entry that is replaced; None where none is.
        last: the newest.
        only_first: whether the entries after the first stay, because no reader reads it any more.
        is_lost: whether no version is whole.
        writes_first: whether entry 0, which only says what columns the table has, is written anew.
    """

    table: str
    damages: Sequence[LogDamage]
    aside: Sequence[str] = ()
    first: int | None = None
    last: int = -1
    only_first: bool = False
    is_lost: bool = False
    writes_first: bool = False

    @property
    def versions(self) -> list[int]:
        """The versions whose entries are replaced, newest first."""
        if self.first is None:
            return []
        return [self.first] if self.only_first else list(range(self.last, self.first - 1, -1))

    @property
    def goes_back(self) -> bool:
        """Whether the table loses versions."""
        return self.first is not None and not self.only_first


@dataclass
class AsideFolder:
    """Where files go that are replaced: `_damaged/<time>` in the lake.

    Attributes:
        lake: the lake.
        stamp: the time, as text.
    """

    lake: LakePaths
    stamp: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))

    def __post_init__(self) -> None:
        self.files = table_files(self.lake.root, storage_options(self.lake.root, self.lake.s3))

    @property
    def place(self) -> str:
        """The folder, relative to the lake."""
        return f"{ASIDE}/{self.stamp}"

    def copy(self, path: str) -> None:
        """Copy a file of the lake there, if it is there."""
        try:
            with self.files.open_input_stream(path, compression=None) as source:
                self._write(f"{self.place}/{path}", source)
        except FileNotFoundError:
            return

    def move(self, path: str) -> None:
        """Move a file of the lake there, if it is there."""
        self.copy(path)
        if self.files.get_file_info(path).is_file:
            self.files.delete_file(path)

    def move_folder(self, path: str) -> int:
        """Move all files of a folder there; how many."""
        infos = self.files.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        # The log goes last: without it, what is left would be no table, and nobody would look at it again.
        names = sorted((info.path for info in infos if info.is_file), key=lambda name: (f"/{LOG}/" in name, name))
        for name in names:
            self.move(name)
        return len(names)

    def _write(self, path: str, source: pa.NativeFile) -> None:
        if self.lake.s3 is not None:
            with write_object(self.lake.s3, f"{self.lake.root}/{path}") as output:
                while block := source.read(8 << 20):
                    output.write(block)
            return
        from pathlib import Path  # noqa: PLC0415

        local = Path(self.lake.root) / path
        local.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(local) as file:
            while block := source.read(8 << 20):
                file.write(block)


def plan_log_repair(lake: LakePaths, table: str) -> LogRepair | None:
    """See what is to be done to a table's log; None where it is whole, or there is none."""
    uri = getattr(lake, table)
    try:
        folder = LogFolder(uri, storage_options(uri, lake.s3), lake.s3)
    except TableNotFoundError:  # no such folder
        gone = missing_log(read_newest(uri, storage_options(uri, lake.s3)))
        return None if gone is None else LogRepair(table, [gone], is_lost=True)
    listing = folder.read_listing()
    damages = list(find_damage(folder, listing))
    if not damages:
        return None
    if listing.newest < 0:
        return LogRepair(table, damages, is_lost=True)
    checkpoints = {damage.version for damage in damages if not damage.is_entry and damage.name != POINTER}
    aside = [file.name for version in checkpoints for file in listing.checkpoints.get(version, ())]
    if listing.has_pointer and (aside or any(damage.name == POINTER for damage in damages)):
        aside.append(POINTER)
    kept = {version: files for version, files in listing.checkpoints.items() if version not in checkpoints}
    rest = LogListing(listing.entries, kept, listing.seals, has_pointer=False)
    seal, _ = newest_seal(folder, listing)
    newest = newest_version(listing, seal)
    bad = {damage.version for damage in damages if damage.is_entry}
    bad |= {damage.version for damage in find_damage(folder, rest) if damage.is_entry}
    bad |= set(islice(missing_versions(rest, newest), MAX_MISSING))
    needed = sorted(version for version in bad if version > rest.base)
    if not needed:
        first = min(bad, default=None)
        return LogRepair(table, damages, aside, first, newest, only_first=first is not None)
    # Without a checkpoint, entry 0 is the one that made the table, and added no file.
    writes_first = needed[0] == 0 and min(rest.entries, default=0) <= 1
    rest_of_needed = [version for version in needed if version > 0]
    if writes_first:
        first = rest_of_needed[0] if rest_of_needed else None
        return LogRepair(table, damages, aside, first, newest, writes_first=True)
    return LogRepair(table, damages, aside, needed[0], newest, is_lost=needed[0] <= 0)


def repair_log(aside: AsideFolder, repair: LogRepair, note: dict[str, Any], keep: Collection[str] = ()) -> None:
    """Bring a log back to its last whole version.

    Args:
        aside: where the files go.
        repair: from `plan_log_repair`; one that is not lost.
        note: what is said in the entries that take the place of others.
        keep: data files that stay although only lost versions have them.
    """
    lake = aside.lake
    uri = getattr(lake, repair.table)
    folder = LogFolder(uri, storage_options(uri, lake.s3), lake.s3)
    for name in sorted(repair.aside, key=lambda name: name != POINTER):
        aside.move(f"{repair.table}/{LOG}/{name}")
    if repair.writes_first:
        aside.copy(f"{repair.table}/{LOG}/{entry_name(0)}")
        folder.write(entry_name(0), first_entry(repair.table, _read_or_nothing(folder, entry_name(0))))
    if repair.goes_back:
        for name in _files_of_lost_versions(folder, repair):
            if name not in keep:
                aside.move(f"{repair.table}/{name}")
    # Checkpoints of the lost versions hold what was lost; without them, the entries are read.
    if repair.first is not None and not repair.only_first:
        listing = folder.read_listing()
        late = [
            file.name for version, files in listing.checkpoints.items() if version >= repair.first for file in files
        ]
        for name in [POINTER, *late] if late else []:  # a pointer without its checkpoint would stop Delta's readers
            aside.move(f"{repair.table}/{LOG}/{name}")
    for version in repair.versions:
        aside.copy(f"{repair.table}/{LOG}/{entry_name(version)}")
        folder.write(entry_name(version), _placeholder(note))
    write_seal(folder, folder.read_listing(), anew=True)


def _read_or_nothing(folder: LogFolder, name: str) -> bytes:
    try:
        return folder.read(name)
    except FileNotFoundError:
        return b""


def _placeholder(note: dict[str, Any]) -> bytes:
    now = time.time_ns() // 1_000_000
    metadata = json.dumps({REPAIR_KEY: note}, sort_keys=True)
    info = {"timestamp": now, "operation": "REPAIR", "operationParameters": {}, "userMetadata": metadata}
    return json.dumps({"commitInfo": info}).encode() + b"\n"


def _files_of_lost_versions(folder: LogFolder, repair: LogRepair) -> list[str]:
    """Data files that the table has no longer once it has gone back, and that no earlier version had.

    An entry that cannot be read does not name its files: these are the ones that were written since the last whole one.
    """
    assert repair.first is not None
    options = storage_options(folder.table_uri)
    try:
        table = DeltaTable(folder.table_uri, version=repair.first - 1, storage_options=options)
    except DeltaError:
        return []
    kept = {unquote(path) for path in file_actions(table).column("path").to_pylist()}
    named: set[str] = set()
    for version in repair.versions:
        try:
            data = folder.read(entry_name(version))
        except FileNotFoundError:
            continue
        named |= added_files(data)
    since = _time_of(folder, repair.first - 1) - _MARGIN_NS
    found = []
    for info in folder.files.get_file_info(pafs.FileSelector("", recursive=True)):
        is_data = info.is_file and info.path.endswith(".parquet") and not info.path.startswith("_")
        if is_data and info.path not in kept and (info.path in named or (info.mtime_ns or 0) >= since):
            found.append(info.path)
    return sorted(found)


def added_files(entry: bytes) -> set[str]:
    """The files that the whole lines of an entry add."""
    found = set()
    for line in entry.splitlines():
        try:
            found.add(unquote(json.loads(line)["add"]["path"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _time_of(folder: LogFolder, version: int) -> int:
    file = folder.read_listing().entries.get(version)
    return file.mtime_ns if file else 0
