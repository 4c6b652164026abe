"""Reads messages that the lake has lost from the brokers' stores again, and adds them to `messages`.

A lost data file may hold the messages of many runs and days, and earlier versions of the table may be gone. The lost
messages are therefore those between the records that `messages` still has. They are read by the tasks of an archive
run, but without a run: `archive_runs`, `profiles` and `topic_minutes` have counted them already, and an audit compares
what was read with these counts. Erased messages are added in their erased form.

    1. holes     parts of the logs without a record in `messages`, where lost files had theirs
    2. read      from stores that still have them; the rest is recorded in `gaps` before anything is removed
    3. commit    removes the lost files and adds the new ones, at once

If a repair is killed, the next one continues: before the commit, all of it is repeated.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.files import entry_name
from commitlake.connectors.lake.delta_log.history import read_history
from commitlake.connectors.lake.erasures import ErasedMessages, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.lost_ranges import REPAIR
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange, plan_splits
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.task import ArchiveTasks, check_files_written
from commitlake.pipelines.archive.work_planning import check_is_same_store
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.masking.archive_masks import ArchiveMasks
from commitlake.pipelines.masking.copies_of_erased import read_later_copies
from commitlake.pipelines.repair.archived_log_ranges import NO_EXTENTS, Extents, join_extents, read_extents
from commitlake.pipelines.repair.commits import make_repair_note, read_maintenance_note
from commitlake.pipelines.repair.data_file_check import DataDamage
from commitlake.pipelines.repair.delta_log import ReplacedFiles, added_file_paths
from commitlake.pipelines.repair.derived_tables import make_run_filter, replace_rows
from commitlake.pipelines.topic_minutes.progress import count_uncounted_runs
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.archive_runs import GAPS
from commitlake.schemas.tables.messages import STORE_DATE

PACK_BYTES = 32 << 20
_GAPS = arrow_schema(GAPS)
_REFILLED = "refilled"
_LAST_OFFSET = (1 << 63) - 1


class LogRange(NamedTuple):
    """A range of one broker's log; `end` is exclusive."""

    broker: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SuspectRange:
    """Range of the logs in which messages may have been lost.

    Attributes:
        name: the lost file, or another cause.
        start: smallest physical offset of a lost record.
        end: largest such offset.
        first_broker: the first broker of lost records, in the order of names; None if unknown.
        last_broker: the last one; None if unknown.
        reason: what is wrong with the file.
        needs_proof: True if messages may as well not be lost: only those that `topic_minutes` counts are.
    """

    name: str
    start: int = 0
    end: int = _LAST_OFFSET
    first_broker: str | None = None
    last_broker: str | None = None
    reason: str = ""
    needs_proof: bool = False

    @classmethod
    def of_file(cls, damage: DataDamage) -> SuspectRange:
        """Return the log range whose messages were in a damaged data file of `messages`."""
        least, greatest = damage.bounds
        return cls(
            f"messages/{unquote(damage.file.path)}",
            least.get("physical_offset") or 0,
            _LAST_OFFSET if greatest.get("physical_offset") is None else greatest["physical_offset"],
            least.get("broker"),
            greatest.get("broker"),
            damage.reason,
        )

    def may_be_of_broker(self, broker: str) -> bool:
        """Return whether the lost messages may be those of the given broker."""
        return (self.first_broker or broker) <= broker <= (self.last_broker or broker)

    def overlaps_range(self, start: int, end: int) -> bool:
        """Return whether a lost record may be in the given range of a log."""
        return start <= self.end and self.start < end

    def has_lost_messages(self, broker: str, counted_messages: int | None, present_messages: int) -> bool:
        """Return whether messages of a broker are lost, given how many were counted and how many are left.

        Args:
            counted_messages: number of its archived messages; None if unknown.
            present_messages: number of those that are still there.
        """
        if not self.may_be_of_broker(broker):
            return False
        if self.first_broker is not None and self.first_broker == self.last_broker:
            return True
        return not self.needs_proof if counted_messages is None else counted_messages > present_messages


@dataclass(frozen=True)
class RefillStores:
    """Stores from which lost messages are read again, with the masking rules for them.

    Attributes:
        stores: the stores.
        masks: rules of the lake; None for none.
        parser_version: version of CommitLake.
    """

    stores: Sequence[Store]
    masks: ArchiveMasks | None = None
    parser_version: str = ""


@dataclass(frozen=True)
class _RereadMessages:
    """Messages that were read again from stores to replace lost ones.

    Attributes:
        files: data files with them.
        left: parts of the holes that no store has.
    """

    files: Sequence[DataFile] = ()
    left: Sequence[LogRange] = ()

    @property
    def row_count(self) -> int:
        return sum(file.rows for file in self.files)


def read_recorded_losses(lake: Lake) -> list[SuspectRange]:
    """Return the log ranges that earlier repairs have recorded in `gaps` as lost."""
    table = lake.find("gaps")
    if table is None:
        return []
    rows = table.to_pyarrow_table(filters=[("run_id", "=", REPAIR)]).to_pylist()
    found = []
    for row in rows:
        first, _, last = (row["broker"] or "").partition(" to ")
        end = _LAST_OFFSET if row["end_offset"] is None else row["end_offset"] - 1
        found.append(
            SuspectRange(row["segment"] or "", row["start_offset"] or 0, end, first or None, last or first or None)
        )
    return found


def restore_messages(
    aside_folder: ReplacedFiles,
    damages: Sequence[DataDamage],
    other_suspects: Sequence[SuspectRange],
    stores: RefillStores | None,
    runner: Runner,
    parser_version: str,
) -> Iterator[str]:
    """Replace damaged data files of `messages` by messages read from the stores, and record missing ones in `gaps`.

    Args:
        aside_folder: receives the damaged files.
        damages: the damaged files.
        other_suspects: other parts of the logs in which messages were lost.
        stores: stores to read; None for none.
        parser_version: written to new rows of `gaps`.

    Yields:
        Sentences on what is lost.
    """
    lake = aside_folder.lake
    recorded = read_recorded_losses(lake)
    suspects = [*map(SuspectRange.of_file, damages), *other_suspects, *(recorded if stores is not None else ())]
    if not suspects:
        return
    last = read_last_commit(lake) or ArchiveCommit(0, "")
    gone = {damage.file.path for damage in damages}
    there = [file for file in read_table_files(lake.table("messages")) if file.path not in gone]
    holes = _find_holes(lake, suspects, there, last)
    read = _RereadMessages(left=holes) if stores is None else _reread_holes(lake, holes, stores, last, runner)
    lost = sum(damage.file.rows or 0 for damage in damages)
    if read.row_count < lost and not read.left:  # the store has other messages there
        read = _RereadMessages(read.files, holes)
    gaps = list(_gap_rows(suspects, read.left, parser_version))
    known = {suspect.name for suspect in recorded}  # by an earlier repair, perhaps one that was killed
    # Before the files are removed: a repair that is killed in between must not forget the losses.
    if new := [gap for gap in gaps if gap["segment"] not in known]:
        append_rows(lake, "gaps", pa.Table.from_pylist(new, schema=_GAPS))
    if damages or read.files:
        replace_table_files(
            lake,
            "messages",
            [damage.file for damage in damages],
            [_to_table_file(file) for file in read.files],
            # If exactly the lost messages are back, readers that follow the table see no change.
            changes_data=bool(read.left) or read.row_count != lost,
            note={**make_repair_note(max(lost - read.row_count, 0)), _REFILLED: len(read.files)},
        )
    # After the commit, which has removed them from the table.
    for damage in damages:
        aside_folder.move_file(f"messages/{unquote(damage.file.path)}")
    if stores is not None and recorded:
        replace_rows(lake, "gaps", make_run_filter([REPAIR]), pa.Table.from_pylist(gaps, schema=_GAPS))
    if damages and read.left:
        of_files = format_count(len(damages), "damaged data file")
        yield f"messages: {format_count(lost - read.row_count, 'row')} of {of_files}"
    for part in read.left:
        yield f"messages: {part.broker}, physical offsets {part.start} to {part.end}: recorded in gaps"


def _find_holes(
    lake: Lake, suspect_ranges: Sequence[SuspectRange], files: Sequence[TableFile], last_commit: ArchiveCommit
) -> list[LogRange]:
    """Return ranges of logs without archived records, if they overlap a range in which messages may be lost."""
    folder = lake.open_folder("messages")
    extents: dict[str, Extents] = {}
    for file in files:
        with (
            folder.open_input_file(unquote(file.path)) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            extents = join_extents([extents, read_extents(parquet)])
    counted = read_archived_counts(lake)
    found = []
    for broker, progress in sorted(last_commit.stores.items()):
        there, known = extents.get(broker, NO_EXTENTS), counted.get(broker)
        messages, first = (None, 0) if known is None else known
        of_broker = [suspect for suspect in suspect_ranges if suspect.has_lost_messages(broker, messages, there.rows)]
        found += [
            LogRange(broker, start, end)
            for start, end in there.find_holes(first, progress.end)
            if any(suspect.overlaps_range(start, end) for suspect in of_broker)
        ]
    return found


class ArchivedCount(NamedTuple):
    """Number of messages that runs archived from a broker, and the physical offset of the first one."""

    messages: int
    first: int


def read_archived_counts(lake: Lake) -> dict[str, ArchivedCount]:
    """Return, by broker, the number of archived messages and the first physical offset; empty if unknown."""
    if "messages" in read_expiries(lake.table("messages")):
        return {}
    sql = (
        "SELECT broker, sum(messages) AS messages, min(first_physical_offset) AS first FROM topic_minutes "
        "WHERE broker IS NOT NULL GROUP BY broker"
    )
    try:
        if count_uncounted_runs(lake):
            return {}
        rows = rows_to_dicts(run_sql(lake.table("topic_minutes"), "topic_minutes", sql).read_all())
    except CommitLakeError:  # it is missing or damaged, and repaired later
        return {}
    return {row["broker"]: ArchivedCount(row["messages"], row["first"]) for row in rows if row["first"] is not None}


def _reread_holes(
    lake: Lake, holes: Sequence[LogRange], stores: RefillStores, last_commit: ArchiveCommit, runner: Runner
) -> _RereadMessages:
    """Read the messages in the given log ranges from the stores, and write them to data files and packs."""
    by_broker = {store.broker: store for store in stores.stores}
    left: list[LogRange] = []
    parts: list[Split] = []
    for hole in holes:
        store = by_broker.get(hole.broker)
        if store is None or last_commit.stores[hole.broker].pulled_topics is not None:  # only some topics were pulled
            left.append(hole)
            continue
        store_end = store.segments[-1].base_offset + store.segments[-1].file_size
        if store_end >= last_commit.stores[hole.broker].end:  # a copy may have the older segments only
            check_is_same_store(store, last_commit.stores[hole.broker])
        start = min(max(hole.start, store.segments[0].base_offset), hole.end)
        end = max(min(hole.end, store_end), start)
        lacks = (LogRange(hole.broker, hole.start, start), LogRange(hole.broker, end, hole.end))
        left += [part for part in lacks if part.start < part.end]
        if start < end:
            parts += plan_splits(store, StoreRange(start, end, LogTailKind.CLOSED), PACK_BYTES)
    erased, copies = read_erased_messages(lake), read_later_copies(lake)
    run_id = f"{REPAIR}-{secrets.token_hex(16)}"
    tasks = ArchiveTasks(
        parts,
        lake,
        run_id,
        stores.parser_version,
        False,
        erased,
        stores.masks,
        PACK_BYTES,
        copies=copies,
    )
    manifest = list(tasks.run_all(runner))
    check_files_written(lake, manifest)
    left += _unreadable_ranges(lake, manifest)
    expired = read_expiries(lake.table("messages")).get("messages")
    files = [row.data_file for row in manifest if row.path and row.table == "messages"]
    _record_later_copies(lake, manifest, erased)
    kept = [file for file in files if expired is None or not file.store_date or file.store_date >= expired.isoformat()]
    _delete_unneeded_files(lake, manifest, kept)
    return _RereadMessages(kept, left)


def _record_later_copies(lake: Lake, manifest: Sequence[ManifestRow], erased_messages: ErasedMessages) -> None:
    """Add to `erasures` the copies of erased messages that were found when the log was read again."""
    for row in manifest:
        if row.path and row.table == "erasures":
            with lake.open_folder("erasures").open_input_file(row.path) as source:
                rows = erased_messages.drop_erased_rows(pq.read_table(source))
            if rows.num_rows:
                append_rows(lake, "erasures", rows)


def _unreadable_ranges(lake: Lake, manifest: Sequence[ManifestRow]) -> list[LogRange]:
    """Return the log ranges that could be read when they were archived, but not now."""
    found, known = set(), set()
    for table in ("quarantine", "gaps"):
        for row in manifest:
            if row.path and row.table == table:
                with lake.open_folder(table).open_input_file(row.path) as source:
                    found |= _to_log_ranges(pq.read_table(source))
        opened = lake.find(table)
        if opened is not None:
            known |= _to_log_ranges(opened.to_pyarrow_table())
    return sorted(found - known)


def _to_log_ranges(rows: pa.Table) -> set[LogRange]:
    columns = (rows.column(name).to_pylist() for name in ("broker", "start_offset", "end_offset"))
    return {LogRange(*values) for values in zip(*columns, strict=True)}


def _delete_unneeded_files(lake: Lake, manifest: Sequence[ManifestRow], kept_files: Sequence[DataFile]) -> None:
    """Delete the files that the tasks wrote for other tables than `messages`, or that are not in `kept_files`."""
    paths = {file.path for file in kept_files}
    for row in manifest:
        if row.path and not (row.table == "messages" and row.path in paths):
            lake.open_folder(row.table).delete_file(row.path)


def _to_table_file(file: DataFile) -> TableFile:
    now = time.time_ns() // 1_000_000
    return TableFile(
        file.path, {STORE_DATE.name: file.store_date}, file.size, file.rows, now, statistics=file.statistics
    )


def _gap_rows(
    suspect_ranges: Sequence[SuspectRange], missing_ranges: Sequence[LogRange], parser_version: str
) -> Iterator[dict[str, Any]]:
    """Yield a row of `gaps` for each broker that has lost messages in a range and cannot provide them again."""
    for suspect in suspect_ranges:
        for broker in sorted({part.broker for part in missing_ranges if suspect.may_be_of_broker(part.broker)}):
            lost = [
                part
                for part in missing_ranges
                if part.broker == broker and part.start <= suspect.end and suspect.start < part.end
            ]
            if lost:
                yield {
                    "broker": broker,
                    "segment": suspect.name,
                    "start_offset": min(part.start for part in lost),
                    "end_offset": max(part.end for part in lost),
                    "found": f"a damaged data file of the lake: {suspect.reason}" if suspect.reason else "",
                    "parser_version": parser_version,
                    "run_id": REPAIR,
                }


class RefilledFiles(NamedTuple):
    """Data files that repairs have added to `messages`, and the version of the last such commit."""

    version: int
    paths: tuple[str, ...]


def find_files_refilled_since(lake: Lake, version: int) -> RefilledFiles:
    """Return the data files that repairs have added to `messages` after a version.

    Args:
        version: the version; -1 for all, as far as the log goes back.
    """
    newest, paths = version, []
    table, folder = lake.table("messages"), lake.open_log("messages")
    for entry in read_history(folder, table.version()):
        if entry.version <= version:
            break
        if (read_maintenance_note(entry.metadata) or {}).get(_REFILLED):
            newest = max(newest, entry.version)
            paths += sorted(added_file_paths(folder.read(entry_name(entry.version))))
    return RefilledFiles(newest, tuple(paths))
