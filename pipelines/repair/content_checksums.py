"""Checks by sums of row hashes whether each table has exactly the rows that CommitLake has written.

`messages` and `message_keys` have no sums: an audit compares every column of the one with profiles, and the other with
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.lake.delta_log.entries import find_commit_info, parse_json
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.files import LogFolder, LogListing, entry_name
from commitlake.connectors.lake.delta_log.row_sum_changes import (
    COMMIT_KEY,
    NOTHING_CHANGED,
    read_footer_sum,
    wrap_int64,
)
from commitlake.connectors.lake.delta_log.seals import expected_row_sum, read_newest_seal, write_seal
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.row_sums import sum_file_rows
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.repair.data_file_check import DataDamage
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

SUMMED_TABLES = tuple(table for table in LAKE_TABLES if table not in {"messages", "message_keys"})
"""The tables whose rows are compared by their sum."""
_TASK_BYTES = 32 << 20
_MAX_ATTEMPTS = 10  # if other processes replace files meanwhile


@dataclass(frozen=True, slots=True)
class TableContents:
    """Result of comparing the checksum of a table's rows with that of the rows CommitLake has written.

    Attributes:
        table: name of the table.
        version: the version that was read.
        rows: number of rows.
        found: sum of the rows.
        expected: sum of the rows that this project has written; None if it is not known.
        is_unsealed: whether the seals of the table's log are missing.
        wrong: data files with other rows than their writer has recorded, or of another program, if the sums differ.
        foreign: version and `commitInfo` of the commits of other programs that the log still has, if the sums differ.
    """

    table: str
    version: int
    rows: int
    found: int
    expected: int | None
    is_unsealed: bool = False
    wrong: Sequence[DataDamage] = field(default=())
    foreign: Sequence[tuple[int, dict[str, Any]]] = field(default=())

    @property
    def has_difference(self) -> bool:
        """True if the rows are not those that CommitLake wrote, or if the checksum of these is not recorded."""
        return self.is_unsealed or self.expected not in (None, self.found)

    def difference_sentences(self, max_named: int) -> list[str]:
        """Return sentences that describe how the rows differ from those that CommitLake has written.

        Args:
            max_named: number of files, and of commits, to name.
        """
        first = (
            "expected a seal of its log, found none: another program has deleted it"
            if self.is_unsealed
            else f"expected rows with the sum {self.expected}, as CommitLake has written them, found the sum "
            f"{self.found}: another program has changed, added or deleted rows"
        )
        programs = [
            f"version {version} was written by another program: {_short_text(info.get('operation'))} of "
            f"{_short_text(info.get('engineInfo') or info.get('clientVersion'))}"
            for version, info in self.foreign[-max_named:]
        ]
        return [first, *map(str, self.wrong[:max_named]), *programs]


def sum_table_contents(
    lake: Lake, tables: Collection[str] = SUMMED_TABLES, runner: Runner = HERE
) -> list[TableContents]:
    """Compute the checksums of tables from all rows of each table's newest version.

    Args:
        tables: names of intact tables; those that do not exist are left out.
    """
    left, done = list(tables), []
    for attempt in range(_MAX_ATTEMPTS):
        states = [state for table in left if (state := _read_table_state(lake, table)) is not None]
        sums = _sum_rows_of_tables(lake, states, runner)
        left = []
        for state, found in zip(states, sums, strict=True):
            if None in found and attempt < _MAX_ATTEMPTS - 1:  # another process has replaced files meanwhile
                left.append(state.table)
            else:
                done.append(state.compare_contents(found))
        if not left:
            break
    return done


def seal_table_contents(lake: Lake, tables: Collection[str] = SUMMED_TABLES, runner: Runner = HERE) -> list[str]:
    """Record the present checksum of each table's rows as the correct one, where it is missing or differs.

    Returns:
        The names of these tables.
    """
    sealed = []
    for contents in sum_table_contents(lake, tables, runner):
        if contents.expected == contents.found and not contents.is_unsealed:
            continue
        log = lake.open_log(contents.table)
        listing = log.read_listing()
        if listing.newest_version == contents.version:  # or else the next run of maintain does it
            write_seal(log, listing, contents.found)
            sealed.append(contents.table)
    return sealed


def undo_foreign_changes(lake: Lake, contents: TableContents) -> bool:
    """Undo the changes that other programs made to a table, if the earlier files still exist.

    Returns:
        True if the table has the rows again that this project has written.
    """
    versions = [version for version, _ in contents.foreign]
    if not versions or contents.expected is None:
        return False
    table = lake.table(contents.table)
    there = {file.path: file for file in read_table_files(table)}
    folder = lake.open_folder(contents.table)
    removed, added = [], []
    for version in versions:
        added_paths, removed_paths = _changed_paths(lake.open_log(contents.table), version)
        removed += [there[path] for path in added_paths if path in there]
        added += [_find_removed_file(folder, path) for path in removed_paths - there.keys()]
    if None in added:
        return False
    files = [file for file in added if file is not None]
    before, after = (
        _sum_rows_of_files(lake, [(contents.table, unquote(file.path)) for file in some]) for some in (removed, files)
    )
    total = contents.found
    for sign, sums in ((-1, before), (1, after)):
        for one in sums:
            if one is None or one.error:
                return False
            total += sign * one.found
    # Nothing is undone unless the result has exactly the rows that CommitLake has written.
    if wrap_int64(total) != contents.expected:
        return False
    replace_table_files(
        lake,
        contents.table,
        removed,
        files,
        changes_data=True,
        note={"action": "repair"},
        expected_version=contents.version,
        # The recorded sum does not include the foreign changes, so it stays.
        sum_change=NOTHING_CHANGED,
    )
    return True


def _changed_paths(log: LogFolder, version: int) -> tuple[set[str], set[str]]:
    """Return the paths of the files that a commit of a table added, and of those that it removed."""
    paths: tuple[set[str], set[str]] = (set(), set())
    for line in log.read(entry_name(version)).splitlines():
        action = parse_json(line)
        for kind, found in zip(("add", "remove"), paths, strict=True):
            if kind in action:
                found.add(action[kind]["path"])
    return paths


def _find_removed_file(folder: pafs.FileSystem, path: str) -> TableFile | None:
    """Return a data file that was removed from a table, if it is still in the table's folder; else None."""
    try:
        with folder.open_input_file(unquote(path)) as source:
            metadata = pq.read_metadata(source)
            size = source.size()
    except (pa.ArrowException, OSError):
        return None
    modified = folder.get_file_info(unquote(path)).mtime_ns or 0
    return TableFile(path, {}, size, metadata.num_rows, modified // 1_000_000, statistics=file_statistics(metadata))


def list_unsealed_tables(lake: Lake, tables: Collection[str] = SUMMED_TABLES) -> list[str]:
    """Return the tables that have no recorded checksum of their rows; does not read any rows."""
    states = (_read_table_state(lake, table) for table in tables)
    return [state.table for state in states if state is not None and state.expected is None]


@dataclass(frozen=True, slots=True)
class _FileSums:
    """Row count of a data file, the checksum of its rows, and the checksum that its footer records."""

    found: int
    rows: int
    recorded: int | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _SealedTableVersion:
    """One version of a table: its files, its log, and the checksum that its rows should have."""

    table: str
    log: LogFolder
    listing: LogListing
    version: int
    files: Sequence[TableFile]
    expected: int | None
    has_seal: bool

    def compare_contents(self, file_sums: Sequence[_FileSums | None]) -> TableContents:
        """Compare the checksums of the table's files with the expected sum, where None is a deleted file."""
        read = [(file, one) for file, one in zip(self.files, file_sums, strict=True) if one is not None]
        found = wrap_int64(sum(one.found for _, one in read))
        rows = sum(one.rows for _, one in read)
        is_unsealed = (
            self.expected is None
            and not self.has_seal
            and any(True for _ in self._commits_by_writer(is_by_commitlake=True))
        )
        made = TableContents(self.table, self.version, rows, found, self.expected, is_unsealed)
        if not made.has_difference:
            return made
        wrong = [
            DataDamage(file, _difference_reason(one), ({}, {}))
            for file, one in read
            if one.recorded != one.found or one.error or file.has_deletions
        ]
        foreign = list(self._commits_by_writer(is_by_commitlake=False))
        return replace(made, wrong=wrong, foreign=foreign)

    def _commits_by_writer(self, *, is_by_commitlake: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield version and `commitInfo` of CommitLake's commits, or of commits of other programs made after them."""
        are_marked = False
        for version in sorted(self.listing.entries):
            try:
                info = find_commit_info(self.log.read(entry_name(version))) or {}
            except FileNotFoundError:
                continue
            is_marked = COMMIT_KEY in info
            are_marked |= is_marked
            if is_marked == is_by_commitlake and are_marked:
                yield version, info


def _difference_reason(file_sums: _FileSums) -> str:
    if file_sums.error:
        return f"expected a Parquet file, found damage: {file_sums.error}"
    if file_sums.recorded is None:
        return "expected a file that CommitLake has written, found one of another program"
    return "expected the rows that its writer has summed in its footer, found others"


def _short_text(value: object) -> str:
    return ascii(value)[1:-1][:80] if isinstance(value, str) else "unknown"


def _read_table_state(lake: Lake, table: str) -> _SealedTableVersion | None:
    attempts = _MAX_ATTEMPTS
    while (opened := lake.find(table)) is not None:
        log = lake.open_log(table)
        listing = log.read_listing()
        attempts -= 1
        is_same = listing.newest_version == opened.version()
        if is_same or not attempts:
            seal, _ = read_newest_seal(log, listing)
            expected = expected_row_sum(log, listing, seal) if is_same else None
            files = read_table_files(opened)
            return _SealedTableVersion(table, log, listing, opened.version(), files, expected, seal is not None)
    return None


def _sum_rows_of_tables(
    lake: Lake, states: Sequence[_SealedTableVersion], runner: Runner
) -> list[list[_FileSums | None]]:
    """Return, by table, the checksum of the rows of each file; None for a file that no longer exists."""
    sums: list[list[_FileSums | None]] = [[None] * len(state.files) for state in states]
    tasks: list[list[tuple[str, str]]] = []
    places: list[list[tuple[int, int]]] = []
    room = 0
    for number, state in enumerate(states):
        for index, file in enumerate(state.files):
            if file.size > room:
                tasks.append([])
                places.append([])
                room = _TASK_BYTES
            tasks[-1].append((state.table, unquote(file.path)))
            places[-1].append((number, index))
            room -= file.size
    for task, found in runner.run(partial(_sum_rows_of_files, lake), tasks):
        for (number, index), one in zip(places[task], found, strict=True):
            sums[number][index] = one
    return sums


def _sum_rows_of_files(lake: Lake, files: Sequence[tuple[str, str]]) -> list[_FileSums | None]:
    return [_sum_rows_of_file(lake, *file) for file in files]


def _sum_rows_of_file(lake: Lake, table: str, path: str) -> _FileSums | None:
    try:
        with lake.open_folder(table).open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            return _FileSums(*sum_file_rows(parquet), read_footer_sum(parquet.metadata))
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError) as error:
        return _FileSums(0, 0, None, str(error).splitlines()[0])
