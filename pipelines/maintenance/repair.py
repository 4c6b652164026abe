"""Repairs a lake: restores `messages` to its last intact version, and rebuilds the tables that follow it.

    1. logs of all tables       log_repair        moves damaged entries and checkpoints aside
    2. messages                 progress_repair   records the archive's progress after the repair
                                data_adoption     rebuilds the log from data files, if no version is intact
    3. data files               data_check        moves damaged files aside, and removes them from their table
                                refill            reads the messages of damaged files from the stores again
                                repeat_runs       reads what runs write to other tables from the stores again
    4. tables of runs           derived_repair    deletes rows of lost runs, adds files that commits name
    5. message_keys             follow            rebuilds it, if it is damaged or ahead of messages
    6. edges                    follow            likewise
    7. topic_minutes            minutes_repair    counts it again from messages, if it is damaged
    8. tables of snapshots,     kept_repair       starts an empty table, if a data file is damaged: of a snapshot only
       consumptions                               changes are stored, and consume logs can be read again
    9. tables of replays        replay_repair     returns to the last intact version, and marks the replays

Nothing is deleted: replaced files are moved to `_damaged/<time>` in the lake. If a repair is killed, running it again
completes it. No other process may write to the lake meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.lake.archive_log import ArchiveCommit, commits_after, read_last_commit
from commitlake.connectors.lake.delta import delta_table, seal
from commitlake.connectors.lake.erasures import lacks_erasures
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.followed_runs import last_finished, missing_runs
from commitlake.connectors.lake.follower import FOLLOWING, lacking_runs, restore_runs
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.links import check_table_links
from commitlake.connectors.lake.log_check import LogDamage, LogDamagedError
from commitlake.connectors.lake.log_files import LogFolder, entry_name
from commitlake.connectors.lake.log_json import parse_json
from commitlake.connectors.lake.log_names import LOG
from commitlake.connectors.lake.new_files import new_files
from commitlake.connectors.lake.newest_versions import delete_newest
from commitlake.connectors.lake.snapshot_tables import SNAPSHOT_TABLES
from commitlake.connectors.lake.versions import VersionGoneError, VersionsError
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.consumptions.follow import follow_consume_logs
from commitlake.pipelines.edges.follow import follow_edges
from commitlake.pipelines.edges.progress import followed_version as followed_edges
from commitlake.pipelines.edges.progress import is_ahead
from commitlake.pipelines.maintenance import replay_repair
from commitlake.pipelines.maintenance.contents import SUMMED_TABLES, Contents, read_contents, undo_changes
from commitlake.pipelines.maintenance.data_adoption import Adoption, adopt_files, find_adoption
from commitlake.pipelines.maintenance.data_adoption import lost_run_ids as runs_beyond
from commitlake.pipelines.maintenance.data_check import DataDamage, find_damaged_files
from commitlake.pipelines.maintenance.derived_repair import (
    OF_RUNS,
    delete_runs,
    lost_run_ids,
    named_files,
    refill_tables,
)
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.kept_repair import HISTORIES, KEPT_TABLES, rebuild_history, rebuild_kept_table
from commitlake.pipelines.maintenance.kept_repair import WAY as KEPT_WAY
from commitlake.pipelines.maintenance.log_repair import (
    AsideFolder,
    LogRepair,
    lost_entries,
    plan_log_repair,
    repair_log,
)
from commitlake.pipelines.maintenance.minutes_repair import MINUTES, must_recount, wrong_minutes
from commitlake.pipelines.maintenance.progress_repair import commit_repair, finished_runs, is_unfinished, lost_runs
from commitlake.pipelines.maintenance.refill import Stores, Suspect, recorded_losses, restore_messages
from commitlake.pipelines.maintenance.repair_notes import repair_note
from commitlake.pipelines.maintenance.repeat_runs import REPEATED, lacking_rows, record_lost_rows, repeat_runs
from commitlake.pipelines.maintenance.table_files import exchange_files, read_table_files
from commitlake.pipelines.message_keys.check import check_keys
from commitlake.pipelines.message_keys.follow import follow_keys
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.counts import count_text
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_KEYS = "message_keys"
_EDGES = "edges"
_CONSUMPTIONS = "consumptions"
_RECOUNTED = "the table is counted again from messages; if some messages have expired, its rows are lost instead"
_BEGINS_ANEW = (
    "the table is moved aside and starts empty with the next snapshot, because each of its rows holds only changes"
)
_AS_COMMITS_TELL = "no version of it is intact: it is moved aside and rebuilt from the commits of messages"
_READ_AGAIN = "the table is moved aside; the next archive run reads again what the stores' consume logs still have"
_WAYS = {
    MINUTES: _RECOUNTED,
    _CONSUMPTIONS: _READ_AGAIN,
    **dict.fromkeys(SNAPSHOT_TABLES, _BEGINS_ANEW),
    **replay_repair.BEGINS_EMPTY,
}
_OF_COMMITS = ("archive_runs",)  # all of their rows are in the commits of messages
_DERIVED = (_EDGES, MINUTES)
_SHOWN = 5  # number of wrong files of a table that the plan names
TABLES = tuple(LAKE_TABLES)
"""All tables: each can be rebuilt, return to an earlier version, or start empty."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Damages of a lake, and how to repair them.

    Attributes:
        logs: repairs of logs, by table.
        files: damaged data files by table, of tables whose log is intact.
        unfinished: True if an earlier repair of `messages` was killed.
        lost: number of runs whose rows `messages` has lost but other tables have not.
        keys: reason to rebuild `message_keys`; empty if it is correct.
        minutes: reason to count `topic_minutes` again; empty if there is none.
        adoption: data files from which `messages` is rebuilt; None if its log can be repaired.
        ahead: sequence of the newest run that `archive_runs` has and `messages` has lost; 0 if there is none.
        missing_runs: by table, the number of runs that it is missing.
        recorded: parts of the logs that earlier repairs have recorded as lost, if there are stores to read them from.
        lacking: by table, the number of rows that earlier repairs have recorded as lost, likewise.
        stores: the stores; None for none.
        contents: the tables with other rows than this project has written.
    """

    logs: Mapping[str, LogRepair] = field(default_factory=dict)
    files: Mapping[str, Sequence[DataDamage]] = field(default_factory=dict)
    unfinished: bool = False
    lost: int = 0
    keys: str = ""
    minutes: str = ""
    adoption: Adoption | None = None
    ahead: int = 0
    missing_runs: Mapping[str, int] = field(default_factory=dict)
    recorded: Sequence[Suspect] = ()
    lacking: Mapping[str, int] = field(default_factory=dict)
    stores: Stores | None = None
    contents: Sequence[Contents] = ()

    @property
    def is_nothing(self) -> bool:
        """True if the lake is intact."""
        return not (
            self.logs
            or self.files
            or self.unfinished
            or self.lost
            or self.keys
            or self.minutes
            or self.ahead
            or self.missing_runs
            or self.recorded
            or self.lacking
            or self.contents
        )

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        for table, repair in self.logs.items():
            for damage in repair.damages:
                yield f"{table}: {damage}"
            if table == "messages" and self.adoption is not None:
                yield from (f"  {line}" for line in self.adoption.lines())
            else:
                yield f"  {_way_of(table, repair)}"
        for table, damages in self.files.items():
            for found in damages:
                yield f"{table}: data file {found}"
            yield f"  {_way_of_files(table, self.stores)}"
        yield from self._lines_of_rows()
        recorded = [("messages", f"messages of {lost.name}") for lost in self.recorded]
        recorded += [(table, count_text(count, "row")) for table, count in self.lacking.items()]
        for table, what in recorded:
            yield f"{table}: an earlier repair has recorded {what} as lost"
            yield f"  {_way_of_files(table, self.stores)}"

    def _lines_of_rows(self) -> Iterator[str]:
        """Yield the lines about tables that are intact, but do not have the rows that they should have."""
        if self.unfinished:
            yield "messages: an earlier repair was interrupted; it is completed"
        if self.ahead:
            yield f"messages has lost its newest commits: archive_runs has runs up to {self.ahead}"
            yield "  the rows of these runs are deleted from the other tables; the next archive run archives them again"
        for table, count in self.missing_runs.items():
            yield f"{table}: {count_text(count, 'run is', 'runs are')} missing that messages has; they are added again"
        if self.lost:
            yield f"rows of {count_text(self.lost, 'run')} that messages has lost are deleted from the other tables"
        for table, reason in ((_KEYS, self.keys), (MINUTES, self.minutes)):
            if reason:
                yield f"{table}: {reason}: it is made again from messages"
        yield from chain.from_iterable(map(_content_lines, self.contents))


def _content_lines(contents: Contents) -> Iterator[str]:
    yield from (f"{contents.table}: {line}" for line in contents.sentences(_SHOWN))
    rebuilt = "is counted again" if contents.table == MINUTES else "is rebuilt"
    way = f"{rebuilt} from messages" if contents.table in _DERIVED else "keeps the rows that it has now"
    yield f"  the changes are undone if the files from before are still there; if not, the table {way}"


def _way_of(table: str, repair: LogRepair) -> str:
    if table in KEPT_TABLES or _is_rebuilt(table, repair):
        return KEPT_WAY
    if repair.is_lost or repair.goes_back:
        return _way_back(table, repair)
    if repair.undone and repair.first is None:
        return "entries of another program are moved aside, and replaced by ones that change nothing"
    if repair.writes_first:
        return "entry 0, which defines the table's columns, is written again"
    if repair.first is not None:
        return "the entry is moved aside; a checkpoint has its contents"
    return "the checkpoint is moved aside; the entries of the log have its contents"


def _way_back(table: str, repair: LogRepair) -> str:
    if repair.is_lost:
        return _WAYS.get(table, _AS_COMMITS_TELL)
    assert repair.first is not None
    continues = table in {"messages", _CONSUMPTIONS}
    more = "the next archive run continues from there" if continues else "missing rows are then added again"
    more = replay_repair.CONTINUES.get(table, more)
    return f"{table} is restored to version {repair.first - 1}, the last intact one; {more}"


def _is_rebuilt(table: str, repair: LogRepair | None) -> bool:
    """Return whether a table is a history whose log has lost versions; its data files have its rows."""
    return repair is not None and table in HISTORIES and (repair.is_lost or repair.goes_back)


def _way_of_files(table: str, stores: Stores | None) -> str:
    ways = {
        **_WAYS,
        **replay_repair.TAKEN_OUT,
        **dict.fromkeys(KEPT_TABLES, KEPT_WAY),
        **dict.fromkeys((_KEYS, _EDGES), "the table is rebuilt from messages"),
        "messages": "is moved aside; its range of the log is added to gaps: --store reads its messages from a store",
    }
    if stores is not None:
        ways |= dict.fromkeys(REPEATED, "its rows are read from the stores again")
        ways["messages"] = "its messages are read from the stores again; what these no longer have is added to gaps"
    return ways.get(table, "is moved aside; its rows are lost, except those in the commits of messages")


def plan_repair(
    lake: Lake,
    *,
    deep: bool = True,
    stores: Stores | None = None,
    runner: Runner = HERE,
) -> RepairPlan:
    """Find the damages of a lake and plan their repair.

    Args:
        deep: True to read every page of every data file, and to compare `message_keys` with `messages`.
        stores: stores from which messages of damaged data files are read again; None for none.

    Raises:
        UnsafeFileError: if the lake contains a link.
    """
    _check_links(lake)
    logs = {table: repair for table in TABLES if (repair := plan_log_repair(lake, table))}
    if "messages" not in logs and not lake.has_log("messages") and lake.followers():
        gone = LogDamage(entry_name(0), 0, "expected the log of a table, found none")
        logs["messages"] = LogRepair("messages", [gone], is_lost=True)
    if "erasures" not in logs and "messages" not in logs and lacks_erasures(lake):
        gone = LogDamage(entry_name(0), 0, "expected the log of a table, as messages records erasures, found none")
        logs["erasures"] = LogRepair("erasures", [gone], is_lost=True)
    files = {}
    for table in TABLES:
        if table not in logs:
            try:
                damages = _find_damages(lake, table, runner, deep=deep)
            except TableNotFoundError:
                continue
            if damages:
                files[table] = damages
    intact = [table for table in SUMMED_TABLES if table not in {*logs, *files}] if deep else []
    contents = [found for found in read_contents(lake, intact, runner) if found.differs]
    if (repair := logs.get("messages")) is not None:
        if repair.goes_back and not repair.is_lost and not _has_files(lake, "messages", (repair.first or 0) - 1):
            logs["messages"] = repair = replace(repair, is_lost=True)  # its data files are all that is left
        adoption = find_adoption(lake) if repair.is_lost else None
        return RepairPlan(logs, files, adoption=adoption, stores=stores, contents=contents)
    recorded = recorded_losses(lake) if stores is not None and "gaps" not in {*logs, *files} else ()
    if "messages" in files:
        return RepairPlan(logs, files, recorded=recorded, stores=stores, contents=contents)
    is_known = stores is not None and "archive_runs" not in {*logs, *files}
    lacking = lacking_rows(lake, [table for table in REPEATED if table not in {*logs, *files}]) if is_known else {}
    lost = _lost_rows(lake) if not set(OF_RUNS) & (logs.keys() | files.keys()) else 0
    keys = "" if {_KEYS, "messages"} & (logs.keys() | files.keys()) else _wrong_keys(lake, runner, deep=deep)
    unfinished = is_unfinished(lake.uri("messages")) is not None
    ahead = 0 if unfinished or "archive_runs" in logs else _newest_lost_run(lake)
    missing = _missing_runs(lake, {*logs, *files})
    is_whole = deep and not (missing or lost or unfinished or ahead or {MINUTES, "gaps"} & {*logs, *files})
    return RepairPlan(
        logs,
        files,
        unfinished,
        lost,
        keys,
        wrong_minutes(lake) if is_whole else "",
        ahead=ahead,
        missing_runs=missing,
        recorded=recorded,
        lacking={table: count for table, count in lacking.items() if table not in missing},
        stores=stores,
        contents=contents,
    )


def _has_files(lake: Lake, table: str, version: int) -> bool:
    """Return whether a version of a table has data files, and all exist; `maintain` and `erase` delete them later."""
    uri = lake.uri(table)
    options = lake.storage_options
    try:
        paths = file_actions(DeltaTable(uri, version=version, storage_options=options)).column("path").to_pylist()
    except DeltaError:
        return False
    infos = LogFolder(uri, options, lake.s3).files.get_file_info([unquote(path) for path in paths])
    return bool(infos) and all(info.is_file for info in infos)


def _check_links(lake: Lake) -> None:
    """Refuse a lake with links: a repair would move the files that they lead to."""
    lake.check_links()
    for table in TABLES:
        check_table_links(lake.uri(table))


def _find_damages(lake: Lake, table: str, runner: Runner, *, deep: bool) -> list[DataDamage]:
    found = find_damaged_files(lake.uri(table), deep=deep, runner=runner)
    return sorted(found, key=lambda damage: damage.file.path)


def _newest_lost_run(lake: Lake) -> int:
    """Return the newest run of `archive_runs` if `messages` has no commit of it or a later one; else 0."""
    finished = last_finished(lake.uri("archive_runs"))
    last = read_last_commit(lake.uri("messages"))
    return finished if finished > (last.sequence if last else 0) else 0


def _missing_runs(lake: Lake, damaged: Collection[str]) -> dict[str, int]:
    """Count the finished runs that are missing in each table that follows `messages`."""
    commits = commits_after(lake.uri("messages"), 0)
    found = {
        table: len(runs)
        for table in FOLLOWING
        if table not in damaged and "archive_runs" not in damaged and (runs := missing_runs(lake, table, commits))
    }
    is_kept = "archive_runs" not in read_expiries(lake.table("messages"))
    if is_kept and "archive_runs" not in damaged and (count := len(lacking_runs(lake))):
        found["archive_runs"] = count
    return found


def _lost_rows(lake: Lake) -> int:
    """Count the lost runs that `archive_runs` still has."""
    lost = lost_runs(lake.uri("messages"))
    named = {run_id for one in lost for run_id in one.run_ids}
    return len(lost_run_ids(lake, lost) - named) if lost else 0


def _wrong_keys(lake: Lake, runner: Runner, *, deep: bool) -> str:
    followed = followed_version(lake)
    for lost in lost_runs(lake.uri("messages")):
        if lost.first <= followed < lost.last:
            return f"it follows version {followed} of messages, which is lost"
    if stuck := _why_stuck(lake, followed):
        return stuck
    if not deep or followed < 0:
        return ""
    check = check_keys(lake, runner=runner)
    if check.same:
        return ""
    expected = count_text(check.expected, "key")
    return check.note or f"expected {expected}, as messages has them, found {check.found:,} or different ones"


def _why_stuck(lake: Lake, followed: int) -> str:
    """Return the reason why a table cannot follow `messages` from a version on; empty if it can."""
    try:
        new_files(lake, followed)
    except VersionGoneError:  # it starts from scratch
        return ""
    except VersionsError as error:
        return str(error)
    return ""


def repair_lake(lake: Lake, plan: RepairPlan, parser_version: str, runner: Runner = HERE) -> list[str]:
    """Repair a lake as planned.

    Args:
        plan: from `plan_repair`.
        parser_version: written to new rows of `archive_runs` and `gaps`.
        runner: runs the tasks that read data files and write those of a rebuilt `message_keys`.

    Returns:
        Sentences on data that could not be recovered.

    Raises:
        UnsafeFileError: if the lake contains a link; nothing is changed then.
    """
    _check_links(lake)
    aside = AsideFolder(lake)
    kept = [table for table in KEPT_TABLES if table in {*plan.logs, *plan.files}]
    losses = [line for table in kept for line in rebuild_kept_table(aside, table, plan.files.get(table, ()))]
    changed = [contents for contents in plan.contents if not undo_changes(lake, contents)]
    losses += [
        f"{one.table}: the rows that another program has changed" for one in changed if one.table not in _DERIVED
    ]
    _repair_log_of_messages(aside, plan)
    missing = losses
    # The messages of damaged data files stay counted, because they come back, or are known to be lost.
    is_wrong = plan.minutes or MINUTES in {one.table for one in changed}
    is_wrong = is_wrong or must_recount(lake, {*plan.logs, *({MINUTES} & plan.files.keys())})
    recount = [MINUTES] if is_wrong else []
    lost_rows: dict[str, int | None] = dict(plan.lacking)
    repaired = {table: list(_repair_table_of_runs(aside, table, plan, runner, lost_rows)) for table in OF_RUNS}
    missing += [line for table, lines in repaired.items() if table not in {*recount, *lost_rows} for line in lines]
    lost = lost_runs(lake.uri("messages"))
    if lost and (run_ids := lost_run_ids(lake, lost)):
        for table in OF_RUNS:
            delete_runs(lake.uri(table), run_ids)
    missing += _restore_messages(aside, plan, runner, parser_version)
    gone = refill_tables(lake, parser_version)
    missing += _restore_archive_runs(lake, plan, parser_version)
    if lost_rows and plan.stores is not None:
        missing += repeat_runs(lake, lost_rows, plan.stores)
    missing += [
        f"{table}: {count_text(count, 'file')} that commits name: missing"
        for table, count in gone.items()
        if table not in {*recount, *lost_rows}
    ]
    missing += [
        f"{table}: {count_text(count, 'row')} of data files that are gone"
        for table, count in record_lost_rows(lake, {*plan.logs, *plan.files}).items()
        if not any(line.startswith(f"{table}: ") for line in missing)
    ]
    for table in SNAPSHOT_TABLES:
        missing += _repair_or_begin(aside, table, plan, runner, "all snapshots so far")
    missing += _restore_consumptions(aside, plan, runner)
    missing += replay_repair.repair_replay_tables(
        aside, plan.logs, lambda table: _damaged_files(lake, table, plan, runner)
    )
    _repair_keys(aside, plan, runner)
    _repair_edges(aside, plan, runner, is_wrong=_EDGES in {one.table for one in changed})
    if plan.recorded and not recorded_losses(lake) and must_recount(lake, {"messages"}):
        recount = [MINUTES]  # it may have been counted without them
    _recount(lake, recount, runner)
    return missing


def _repair_log_of_messages(aside: AsideFolder, plan: RepairPlan) -> None:
    """Repair the log of `messages`, and record the archive's progress after that."""
    lake = aside.lake
    of_messages = plan.logs.get("messages")
    if of_messages is not None:
        if plan.adoption is not None:
            adopt_files(aside, plan.adoption, finished_runs(lake))
            seal(lake.uri("messages"), lake.s3)
        else:
            repair_log(aside, of_messages, _note(lake, of_messages))
    note = is_unfinished(lake.uri("messages"))
    if note is None and plan.ahead:
        version = lake.table("messages").version() + 1
        note = {"first": version, "run_ids": [], "sequence": plan.ahead, "goes_back": True}
    if note is not None:
        commit_repair(lake, note)


def _restore_messages(aside: AsideFolder, plan: RepairPlan, runner: Runner, parser_version: str) -> Iterator[str]:
    """Restore lost messages from the stores, and delete what other tables have of runs whose messages are all lost.

    Yields:
        Sentences on what is lost.
    """
    lake, adoption = aside.lake, plan.adoption
    others = [] if adoption is None else [Suspect("messages", needs_proof=True)]
    damaged = _damaged_files(lake, "messages", plan, runner)
    yield from restore_messages(aside, damaged, others, plan.stores, runner, parser_version)
    if adoption is None:
        return
    yield from adoption.losses(sum(file.rows or 0 for file in read_table_files(lake.table("messages"))))
    if lost_ids := runs_beyond(lake, adoption):
        for table in OF_RUNS:
            delete_runs(lake.uri(table), lost_ids)
        yield f"{count_text(len(lost_ids), 'run is', 'runs are')} lost: {', '.join(sorted(lost_ids)[:5])}"


def _restore_archive_runs(lake: Lake, plan: RepairPlan, parser_version: str) -> Iterator[str]:
    if "archive_runs" not in {*plan.logs, *plan.files, *plan.missing_runs}:
        return
    restored = restore_runs(lake, parser_version)
    removed = sum(damage.file.rows or 0 for damage in plan.files.get("archive_runs", ()))
    if restored < removed:
        yield f"archive_runs: {count_text(removed - restored, 'row')} of runs that are no longer in the log of messages"


def _recount(lake: Lake, tables: Sequence[str], runner: Runner) -> None:
    if MINUTES in tables:
        backfill_minutes(lake, runner, from_scratch=True)


def _repair_table_of_runs(
    aside: AsideFolder, table: str, plan: RepairPlan, runner: Runner, lost_rows: dict[str, int | None]
) -> Iterator[str]:
    """Repair a table of runs.

    Args:
        table: name of the table.
        lost_rows: receives the number of lost rows, None if unknown, if these can be read from the stores again.

    Yields:
        Sentences on lost rows.
    """
    lake, repair = aside.lake, plan.logs.get(table)
    is_repeated = plan.stores is not None and table in REPEATED
    if _is_rebuilt(table, repair):
        yield from rebuild_history(aside, table)
        return
    if repair is not None and repair.is_lost:
        aside.move_folder(f"{table}/{LOG}")
        delete_newest(lake.uri(table), lake.storage_options)
        if is_repeated:
            lost_rows[table] = None
        if table not in _OF_COMMITS:
            yield f"{table}: rows that are in no commit of messages"
        return
    if repair is not None:
        named = named_files(commits_after(lake.uri("messages"), 0), table)
        repair_log(aside, repair, {"table": table}, keep=named)
    damaged = _damaged_files(lake, table, plan, runner)
    if is_repeated and (damaged or (repair is not None and repair.goes_back)):
        lost_rows[table] = sum(damage.file.rows or 0 for damage in damaged)
    yield from _take_out(aside, table, damaged)


def _restore_consumptions(aside: AsideFolder, plan: RepairPlan, runner: Runner) -> Iterator[str]:
    """Repair `consumptions`, and read again what the stores' consume logs still have."""
    if _CONSUMPTIONS not in {*plan.logs, *plan.files}:
        return
    lake, gone = aside.lake, "records that the stores' consume logs no longer have"
    known = None if _CONSUMPTIONS in plan.logs else _count_rows(lake.uri("consumptions"))
    missing = list(_repair_or_begin(aside, _CONSUMPTIONS, plan, runner, gone))
    if plan.stores is None:
        yield from missing
        return
    problems = follow_consume_logs(lake, plan.stores.stores).problems
    yield from (f"{_CONSUMPTIONS}: {problem}" for problem in problems)
    if known is None:
        yield from missing if plan.logs[_CONSUMPTIONS].is_lost else ()
    elif (lost := known - _count_rows(lake.uri("consumptions"))) > 0:
        yield f"{_CONSUMPTIONS}: {count_text(lost, 'record')} that the stores' consume logs no longer have"


def _count_rows(uri: str) -> int:
    """Return the number of rows of a table, by its log; 0 if there is none."""
    try:
        return sum(file.rows or 0 for file in read_table_files(delta_table(uri)))
    except TableNotFoundError:
        return 0


def _repair_or_begin(
    aside: AsideFolder, table: str, plan: RepairPlan, runner: Runner, everything: str
) -> Iterator[str]:
    """Repair a table's log, or start an empty table if that is not enough.

    Args:
        table: name of the table.
        everything: what is lost if it goes back to an earlier version, or starts empty.

    Yields:
        What is lost.
    """
    repair = plan.logs.get(table)
    if _is_rebuilt(table, repair):
        yield from rebuild_history(aside, table)
        return
    if repair is not None and not repair.is_lost:
        repair_log(aside, repair, {"table": table})
        if repair.goes_back:
            yield f"{table}: {everything}"
    if (repair is not None and repair.is_lost) or _damaged_files(aside.lake, table, plan, runner):
        aside.move_folder(table)
        delete_newest(aside.lake.uri(table), aside.lake.storage_options)
        yield f"{table}: {everything}"


def _damaged_files(lake: Lake, table: str, plan: RepairPlan, runner: Runner) -> Sequence[DataDamage]:
    """Return a table's damaged data files. If its log was repaired, the files are checked again."""
    if table not in plan.logs:
        return plan.files.get(table, ())
    try:
        return _find_damages(lake, table, runner, deep=True)
    except TableNotFoundError:
        return ()


def _take_out(aside: AsideFolder, table: str, found: Sequence[DataDamage]) -> Iterator[str]:
    """Remove damaged data files from a table that follows `messages`."""
    if not found:
        return
    rows = sum(damage.file.rows or 0 for damage in found)
    removed = [damage.file for damage in found]
    exchange_files(aside.lake.uri(table), removed, [], changes_data=True, note=repair_note(rows))
    for damage in found:
        aside.move(f"{table}/{unquote(damage.file.path)}")
    if table not in _OF_COMMITS:
        yield f"{table}: {count_text(rows, 'row')} of {count_text(len(found), 'damaged data file')}"


def _repair_keys(aside: AsideFolder, plan: RepairPlan, runner: Runner) -> None:
    lake = aside.lake
    try:
        wrong = (
            {_KEYS} & {*plan.logs, *plan.files}
            or plan.keys
            or plan.adoption is not None
            or _wrong_keys(lake, runner, deep=True)
        )
    except (LogDamagedError, VersionsError, OSError, pa.ArrowException):
        wrong = True
    if wrong:
        aside.move_folder(_KEYS)
        delete_newest(lake.uri("message_keys"), lake.storage_options)
        follow_keys(lake, runner)


def _repair_edges(aside: AsideFolder, plan: RepairPlan, runner: Runner, *, is_wrong: bool) -> None:
    lake = aside.lake
    if not lake.has_log(_EDGES) and _EDGES not in {*plan.logs, *plan.files}:
        return
    is_damaged = bool({_EDGES, _CONSUMPTIONS, "messages"} & {*plan.logs, *plan.files})
    is_changed = is_wrong or is_damaged or plan.adoption is not None or plan.recorded
    if is_changed or is_ahead(lake) or _why_stuck(lake, followed_edges(lake)):
        aside.move_folder(_EDGES)
        delete_newest(lake.uri("edges"), lake.storage_options)
        follow_edges(lake, runner)


def _note(lake: Lake, repair: LogRepair) -> dict[str, Any]:
    """Return the note for entries that replace others, with the lost runs that the entries still name."""
    folder = lake.log("messages")
    run_ids, sequence = set(), 0
    for data in lost_entries(folder, repair.versions if repair.goes_back else ()):
        for line in data.splitlines():
            try:
                commit = ArchiveCommit.from_metadata(parse_json(line)["commitInfo"]["userMetadata"])
            except (ValueError, KeyError, TypeError):
                continue
            if commit is not None:
                run_ids.add(commit.run_id)
                sequence = max(sequence, commit.sequence)
    return {
        "first": repair.first,
        "run_ids": sorted(run_ids),
        "sequence": sequence,
        "goes_back": repair.goes_back,
    }
