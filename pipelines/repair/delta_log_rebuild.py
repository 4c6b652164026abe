"""Rebuilds the log of `messages` from its data files if no version of its log is intact.

The data files hold everything except which of them belong to the table. A run that was killed before its commit left
files, and so did merges. A file is therefore taken if its run is in `archive_runs`, or if it was merged. Larger files
are taken first, and a file is taken only if none of its rows is in the table already. Rows are identified by the ranges
of the log that their records occupy, which are few for each file.

A store counts as archived up to the end of its last row, so the next archive run repeats no rows.
"""

from __future__ import annotations

import datetime
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from commitlake.connectors.lake.archive_commits import APPLICATION_ID, ArchiveCommit, RunCounts, StoreProgress
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.lake.delta_log.files import entry_name
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import NO_DATE
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.pipelines.repair.archived_log_ranges import Extents, read_extents
from commitlake.pipelines.repair.delta_log import ReplacedFiles, create_empty_table
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.safe_store_files import make_folders
from commitlake.schemas.tables.messages import PARTITION_COLUMNS, STORE_DATE

_RUN = re.compile(r"part-\d+-([0-9a-f]{32})-[0-9a-f]{8}")
_DATE = re.compile(rf"{STORE_DATE.name}=([^/]+)/[^/]+\.parquet")


@dataclass(frozen=True, slots=True)
class AdoptedFile:
    """Data file that becomes part of `messages` again when its Delta log is rebuilt.

    Attributes:
        path: relative to the table's folder.
        size: size in bytes.
        rows: number of rows.
        store_date: value of the partition; None for rows without a time.
        modified_ms: time at which it was written.
        statistics: Delta's statistics as JSON.
        extents: ranges of its records, by broker.
    """

    path: str
    size: int
    rows: int
    store_date: str | None
    modified_ms: int
    statistics: str
    extents: Mapping[str, Extents]


@dataclass
class FileAdoption:
    """Data files from which the table `messages` is rebuilt, and files that are left out, with the reasons.

    Attributes:
        files: files that are taken.
        extents: ranges of their records, by broker.
        damaged: files that cannot be read, with reasons.
        overlapping: files with some, but not all, of their rows in other files.
        uncommitted: files of runs that are not in `archive_runs`.
        expected: number of messages of the runs in `archive_runs`; None if that cannot be read.
    """

    files: list[AdoptedFile] = field(default_factory=list)
    extents: dict[str, Extents] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    uncommitted: list[str] = field(default_factory=list)
    expected: int | None = None

    @property
    def row_count(self) -> int:
        """Number of rows in all adopted files."""
        return sum(file.rows for file in self.files)

    def summary_sentences(self) -> Iterator[str]:
        """Yield sentences that describe the rebuilt table."""
        ends = ", ".join(f"{broker} up to {extents.end:,}" for broker, extents in sorted(self.extents.items()))
        yield (
            f"it is rebuilt from {format_count(len(self.files), 'data file')} with "
            f"{format_count(self.row_count, 'message')}: "
            f"{ends or 'none'}"
        )
        if self.uncommitted:
            yield (
                f"{format_count(len(self.uncommitted), 'data file is', 'data files are')} left out: archive_runs "
                "does not have their runs"
            )

    def loss_sentences(self, present_rows: int) -> Iterator[str]:
        """Yield sentences on rows that the rebuilt table lacks and that cannot be recovered.

        Args:
            present_rows: number of rows that the table has now, with those that were read from stores again.
        """
        if self.expected is not None and present_rows >= self.expected:
            return
        for reason in self.damaged:
            yield f"messages: data file {reason}; its rows are lost"
        for path in self.overlapping:
            yield f"messages: data file {path}: some of its rows are in other files, the others are lost"
        if self.expected is not None:
            yield (
                f"messages: expected {format_count(self.expected, 'message')}, as archive_runs counts them, including "
                f"those that 'maintain --keep' has dropped, found {present_rows:,}"
            )

    def add_file(self, file: AdoptedFile) -> None:
        """Add a data file to the rebuilt table, or leave it out if an added file has some of its records."""
        shared = sum(
            self.extents[broker].overlap_bytes(extents)
            for broker, extents in file.extents.items()
            if broker in self.extents
        )
        # If all records of a file are in the table already, nothing is lost by leaving it out.
        if shared:
            if shared < sum(extents.total_bytes for extents in file.extents.values()):
                self.overlapping.append(file.path)
            return
        self.files.append(file)
        for broker, extents in file.extents.items():
            self.extents[broker] = self.extents[broker].join_with(extents) if broker in self.extents else extents


def lost_run_ids(lake: Lake, adoption: FileAdoption) -> set[str]:
    """Return the ids of archive runs without a message in the files; the next run archives their messages again."""
    runs = _finished_runs(lake) or {}
    if not adoption.files:
        return set(runs)
    try:
        profiles = lake.find("profiles")
        if profiles is None:
            return set()
        rows = profiles.to_pyarrow_table(columns=["run_id", "broker", "first_physical_offset"])
    except (DeltaError, LogDamagedError, OSError, pa.ArrowException):
        return set()
    firsts = rows.group_by(["run_id", "broker"]).aggregate([("first_physical_offset", "min")]).to_pylist()
    kept = {
        row["run_id"]
        for row in firsts
        if row["broker"] in adoption.extents and row["first_physical_offset_min"] < adoption.extents[row["broker"]].end
    }
    return {row["run_id"] for row in firsts} - kept


def find_adoptable_files(lake: Lake) -> FileAdoption:
    """Find the data files from which `messages` can be rebuilt."""
    found = FileAdoption()
    runs = _finished_runs(lake)
    if runs is not None:
        found.expected = sum(runs.values())
    candidates = []
    for path, info in _find_data_files(lake):
        run = _RUN.match(path.rpartition("/")[2])
        # Without `archive_runs`, nothing tells a killed run's files from others, so that all are taken.
        if run and runs is not None and run[1] not in runs:
            found.uncommitted.append(path)
            continue
        try:
            candidates.append(_read_adopted_file(lake, path, info))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            lines = str(error).splitlines() or ["no message"]
            found.damaged.append(f"{path}: {lines[0]}")
    # The largest first, as merged files hold the rows of several smaller ones.
    for file in sorted(candidates, key=lambda file: (-file.rows, file.path)):
        found.add_file(file)
    return found


def write_log_of_adopted_files(aside_folder: ReplacedFiles, adoption: FileAdoption, sequence: int) -> ArchiveCommit:
    """Write a new Delta log for `messages` that lists the given files, and move the remains of the old log aside.

    Args:
        adoption: from `find_adoptable_files`.
        sequence: sequence of the newest known run, or more.
    """
    lake = aside_folder.lake
    commit = _adoption_commit(lake, adoption, sequence)
    entries = _make_log_entries(adoption.files, commit)
    taken = {file.path for file in adoption.files}
    # Files that are not taken would otherwise be adopted by a later rebuild.
    for path, _ in _find_data_files(lake):
        if path not in taken:
            aside_folder.move_file(f"messages/{path}")
    aside_folder.move_log("messages")
    if lake.s3 is None:
        make_folders(Path(lake.uri("messages")), trusted_root=Path(lake.root))
    folder = lake.open_log("messages")
    # Entries are written from the newest to the oldest: without entry 0 the table does not exist yet.
    for version in sorted(entries, reverse=True):
        folder.write(entry_name(version), entries[version])
    return commit


def _finished_runs(lake: Lake) -> dict[str, int] | None:
    """Return the number of messages of each run in `archive_runs`; None if it cannot be read."""
    try:
        runs = lake.find("archive_runs")
        if runs is None:
            return None
        rows = runs.to_pyarrow_table(columns=["run_id", "messages"]).to_pylist()
    except (DeltaError, LogDamagedError, OSError, pa.ArrowException):
        return None
    return {row["run_id"]: row["messages"] for row in rows}


def _find_data_files(lake: Lake) -> Iterator[tuple[str, pafs.FileInfo]]:
    """Yield all data files in the folder of `messages`, sorted by name."""
    try:
        folder = lake.open_log("messages")
    except TableNotFoundError:  # no such folder
        return
    infos = folder.filesystem.get_file_info(pafs.FileSelector("", recursive=True, allow_not_found=True))
    for info in sorted(infos, key=lambda info: str(info.path)):
        if info.is_file and _DATE.fullmatch(info.path):
            yield info.path, info


def _read_adopted_file(lake: Lake, path: str, info: pafs.FileInfo) -> AdoptedFile:
    files = lake.open_log("messages").filesystem
    with files.open_input_file(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        extents = read_extents(parquet)
        date = _DATE.fullmatch(path)
        text = unquote(date[1]) if date else NO_DATE
        modified = (info.mtime_ns or time.time_ns()) // 1_000_000
        return AdoptedFile(
            path,
            info.size,
            parquet.metadata.num_rows,
            None if text == NO_DATE else text,
            modified,
            file_statistics(parquet.metadata),
            extents,
        )


def _adoption_commit(lake: Lake, adoption: FileAdoption, sequence: int) -> ArchiveCommit:
    """Return the archive commit for a rebuilt log, with each store's progress from its rows or from old entries."""
    known = _newest_readable_commit(lake)
    stores = {broker: StoreProgress(extents.end) for broker, extents in adoption.extents.items()}
    for broker, progress in known.stores.items() if known else ():
        # What else an old entry says of a store holds only if the store ends where the adopted rows end.
        if broker not in stores or stores[broker].end == progress.end:
            stores[broker] = progress
    return ArchiveCommit(
        max(sequence, known.sequence if known else 0) + 1,
        f"repair-{secrets.token_hex(16)}",
        stores,
        counts=RunCounts(datetime.datetime.now(datetime.UTC).isoformat(), 0, 0, 0),
        bodies=known.bodies if known else None,
        masks=known.masks if known else None,
    )


def _newest_readable_commit(lake: Lake) -> ArchiveCommit | None:
    """Return the newest archive commit in any readable entry of the Delta log; None if there is none."""
    try:
        folder = lake.open_log("messages")
    except TableNotFoundError:
        return None
    for version in sorted(folder.read_listing().entries, reverse=True):
        for line in folder.read(entry_name(version)).splitlines():
            try:
                commit = ArchiveCommit.from_metadata(parse_json(line)["commitInfo"]["userMetadata"])
            except (ValueError, KeyError, TypeError):
                continue
            if commit is not None:
                return commit
    return None


def _make_log_entries(files: Sequence[AdoptedFile], commit: ArchiveCommit) -> dict[int, bytes]:
    """Return the entries of the rebuilt Delta log of `messages`, by version."""
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {STORE_DATE.name: file.store_date}, file.modified_ms, True, file.statistics)
        for file in files
    ]
    properties = CommitProperties(
        custom_metadata={"userMetadata": commit.to_metadata()},
        app_transactions=[Transaction(APPLICATION_ID, commit.sequence)],
    )
    with tempfile.TemporaryDirectory() as name:
        table = create_empty_table(Path(name), "messages")
        table.create_write_transaction(
            actions, "append", table.schema(), list(PARTITION_COLUMNS), commit_properties=properties
        )
        log = Path(name) / LOG
        return {version: (log / entry_name(version)).read_bytes() for version in range(2)}
