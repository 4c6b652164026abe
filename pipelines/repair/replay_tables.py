"""Repairs the tables of replays, whose rows are in no other table.

    replays          returns to its last intact version
    replay_messages  likewise; for each message without a row, a resumed replay looks in the target
    replay_rows      likewise; a replay whose copies are lost fails when it is resumed

A replay that has not ended gets the event `rows_lost` if rows of `replays` or `replay_messages` are lost. Then 'replay
resume' does not trust the offsets in these tables: it reads the queues of the target from where they ended when the
replay was planned, so that it sends no message twice.

The event is added before, or in the same commit as, the first change that loses rows. So a repair that is killed leaves
no replay without it.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.maintenance.file_replacement import new_table_file, replace_table_files
from commitlake.pipelines.repair.commits import make_repair_note
from commitlake.pipelines.repair.data_file_check import DataDamage
from commitlake.pipelines.repair.delta_log import LogRepair, ReplacedFiles, repair_log
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import RowOrigin, tables_with_origin
from commitlake.schemas.tables.replays import ENDED, REPLAYS, ReplayEvent

EVENTS, OUTCOMES, COPIES = "replays", "replay_messages", "replay_rows"
REPLAY_TABLES = tables_with_origin(RowOrigin.REPLAYS)
CONTINUES = {
    EVENTS: "later events are lost; 'replay resume' looks in the target for what was sent",
    OUTCOMES: "later outcomes are lost; 'replay resume' looks in the target for what was sent",
    COPIES: "later copies are lost, and replays of them cannot be resumed",
}
"""By table, what its return to an earlier version means."""
BEGINS_EMPTY = {
    EVENTS: "no version of it is intact: it is moved aside and starts empty; no earlier replay can be resumed",
    OUTCOMES: "no version of it is intact: it is moved aside and starts empty; 'replay resume' looks in the target",
    COPIES: "no version of it is intact: it is moved aside and starts empty; replays of copies cannot be resumed",
}
TAKEN_OUT = {
    EVENTS: "is moved aside; its events are lost; 'replay resume' looks in the target for what was sent",
    OUTCOMES: "is moved aside; its outcomes are lost; 'replay resume' looks in the target for what was sent",
    COPIES: "is moved aside; its copies are lost, and replays of them cannot be resumed",
}
_NEWEST = {
    EVENTS: "the events in its newest commits",
    OUTCOMES: "the outcomes in its newest commits",
    COPIES: "the copies in its newest commits",
}
_MAX_SHOWN = 5


def repair_replay_tables(
    aside_folder: ReplacedFiles,
    log_repairs: Mapping[str, LogRepair],
    get_damaged_files: Callable[[str], Sequence[DataDamage]],
) -> Iterator[str]:
    """Repair the tables of replays, and yield sentences on what is lost.

    Args:
        log_repairs: repairs of logs, by table.
        get_damaged_files: returns the damaged data files of a table whose log is intact.

    Yields:
        Sentences on what is lost.
    """
    lake = aside_folder.lake
    losses = list(_repair_table(aside_folder, EVENTS, log_repairs.get(EVENTS), get_damaged_files))
    if losses:
        yield from losses
        yield from _lost_plans_sentence(lake)
        if lake.has_log("erasures"):
            yield "replays: plans may name erased keys again; erase these keys once more"
    outcomes = log_repairs.get(OUTCOMES)
    if outcomes is not None and not _is_losing_rows(outcomes):
        repair_log(aside_folder, outcomes, {"table": OUTCOMES})  # so that the table can be opened
        log_repairs = {table: repair for table, repair in log_repairs.items() if table != OUTCOMES}
    if OUTCOMES in log_repairs or get_damaged_files(OUTCOMES):
        _mark_unended_replays(lake, OUTCOMES)
    for table in (OUTCOMES, COPIES):
        yield from _repair_table(aside_folder, table, log_repairs.get(table), get_damaged_files)


def _is_losing_rows(repair: LogRepair) -> bool:
    return repair.is_lost or repair.loses_versions


def _repair_table(
    aside_folder: ReplacedFiles,
    table: str,
    log_repair: LogRepair | None,
    get_damaged_files: Callable[[str], Sequence[DataDamage]],
) -> Iterator[str]:
    lake = aside_folder.lake
    if log_repair is not None and log_repair.is_lost:
        aside_folder.move_table(table)
        yield f"{table}: all of its rows"
        return
    if log_repair is not None:
        first = log_repair.first

        def write_rows_lost_events() -> list[DataFile]:
            if table != EVENTS or first is None:
                return []
            return _write_rows_lost_events(lake, lake.table_at(table, first - 1))

        repair_log(aside_folder, log_repair, {"table": table}, write_added_files=write_rows_lost_events)
        if log_repair.loses_versions:
            yield f"{table}: {_NEWEST[table]}"
    found = get_damaged_files(table)
    if not found:
        return
    added = _write_rows_lost_events(lake, lake.table(table)) if table == EVENTS else []
    rows = sum(damage.file.rows or 0 for damage in found)
    replace_table_files(
        lake, table, [damage.file for damage in found], list(map(new_table_file, added)), changes_data=True,
        note=make_repair_note(rows),
    )  # fmt: skip
    for damage in found:
        aside_folder.move_file(f"{table}/{unquote(damage.file.path)}")
    yield f"{table}: {format_count(rows, 'row')} of {format_count(len(found), 'damaged data file')}"


def _mark_unended_replays(lake: Lake, damaged_table: str) -> None:
    """Add an event `rows_lost` to `replays` for each unfinished replay, because a repair lost rows it may need."""
    table = lake.find("replays")
    if table is None:
        return
    rows = _rows_lost_events(lake, table, damaged_table)
    if rows.num_rows:
        append_rows(lake, "replays", rows)


def _write_rows_lost_events(lake: Lake, table: DeltaTable) -> list[DataFile]:
    """Write an event `rows_lost` for each unfinished replay to an uncommitted data file of `replays`."""
    rows = _rows_lost_events(lake, table, EVENTS)
    name = f"part-{secrets.token_hex(16)}.zstd.parquet"
    return [write_plain_file(rows, lake, "replays", name)] if rows.num_rows else []


def _rows_lost_events(lake: Lake, table: DeltaTable, damaged_table: str) -> pa.Table:
    """Return, as rows of `replays`, an event `rows_lost` for each unfinished replay."""
    known: set[str] = set()
    ended: set[str] = set()
    for rows in _readable_rows(lake, EVENTS, table, ["replay_id", "event"]):
        for row in rows.to_pylist():
            known.add(row["replay_id"])
            if row["event"] in ENDED:
                ended.add(row["replay_id"])
    at = datetime.datetime.now(datetime.UTC)
    detail = f"'commitlake maintain --repair' has lost rows of {damaged_table}"
    marks = [
        {"replay_id": name, "at": at, "event": str(ReplayEvent.ROWS_LOST), "detail": detail}
        for name in sorted(known - ended)
    ]
    return pa.Table.from_pylist(marks, arrow_schema(REPLAYS))


def _lost_plans_sentence(lake: Lake) -> Iterator[str]:
    """Yield a sentence on replays that have sent messages but whose plan is lost, if there are any."""
    table = lake.find("replays")
    plans = () if table is None else _readable_rows(lake, EVENTS, table, ["replay_id", "plan"])
    planned = {row["replay_id"] for rows in plans for row in rows.to_pylist() if row["plan"]}
    try:
        outcomes = lake.table_at("replay_messages")
    except DeltaError:  # there is none, or it is damaged, too
        return
    ids = (rows.column(0) for rows in _readable_rows(lake, OUTCOMES, outcomes, ["replay_id"]))
    sent = {name for column in ids for name in column.unique().to_pylist()}
    lost = sorted(sent - planned)
    if lost:
        more = f" and {len(lost) - _MAX_SHOWN:,} more" if len(lost) > _MAX_SHOWN else ""
        yield (
            f"replays: {format_count(len(lost), 'plan')} of replays that have sent messages: "
            f"{', '.join(lost[:_MAX_SHOWN])}{more}. They cannot be resumed, and a new replay of the same messages "
            "sends them a second time"
        )


def _readable_rows(lake: Lake, table: str, delta_table: DeltaTable, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a table, file by file; files that cannot be read are left out."""
    folder = lake.open_folder(table)
    for file in read_table_files(delta_table):
        try:
            with folder.open_input_file(unquote(file.path)) as source:
                yield pq.read_table(source, columns=list(columns))
        except (pa.ArrowException, OSError):
            continue
