"""Repairs a lake: restores `messages` to its last intact version, and rebuilds the tables that follow it.

    1. logs of all tables       delta_log         moves damaged entries and checkpoints aside
    2. messages                 commits           records the archive's progress after the repair
                                rebuilt_log       rebuilds the log from data files, if no version is intact
    3. data files               data_check        moves damaged files aside, and removes them from their table
                                refill            reads the messages of damaged files from the stores again
                                repeat_runs       reads what runs write to other tables from the stores again
    4. tables of runs           derived_tables    deletes rows of lost runs, adds files that commits name
    5. message_keys             follow            rebuilds it, if it is damaged or ahead of messages
    6. edges                    follow            likewise
    7. topic_minutes            backfill          counts it again from messages, if it is damaged
    8. tables of snapshots,     kept_tables       starts an empty table, if a data file is damaged: of a snapshot only
       consumptions                               changes are stored, and consume logs can be read again
       typed tables of topics                     moves them aside; 'commitlake topics' makes them again from messages
    9. tables of replays        replay_tables     returns to the last intact version, and marks the replays
    10. lag_minutes                               moves it aside, if it or what it is computed from is damaged

Nothing is deleted: replaced files are moved to `_damaged/<time>` in the lake. If a repair is killed, running it again
completes it. No other process may write to the lake meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after
from commitlake.connectors.lake.archive_run_completion import restore_runs
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.delta_log.versions import VersionsError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.consumptions.table_update import follow_consume_logs
from commitlake.pipelines.edges.progress import followed_messages_version as followed_edges
from commitlake.pipelines.edges.progress import is_ahead_of_messages
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair import replay_tables
from commitlake.pipelines.repair.commits import (
    commit_repair,
    find_unfinished_repair,
    make_repair_note,
    newest_finished_sequence,
    read_lost_runs,
)
from commitlake.pipelines.repair.content_checksums import undo_foreign_changes
from commitlake.pipelines.repair.data_file_check import DataDamage
from commitlake.pipelines.repair.delta_log import LogRepair, ReplacedFiles, read_lost_entries, repair_log
from commitlake.pipelines.repair.delta_log_rebuild import lost_run_ids as runs_beyond
from commitlake.pipelines.repair.delta_log_rebuild import write_log_of_adopted_files
from commitlake.pipelines.repair.derived_tables import (
    OF_RUNS,
    add_missing_table_files,
    delete_rows_of_runs,
    files_named_by_commits,
    lost_run_ids,
)
from commitlake.pipelines.repair.history_tables import (
    HISTORIES,
    KEPT_TABLES,
    keep_earlier_snapshots,
    rebuild_from_intact_files,
    rebuild_history_table,
)
from commitlake.pipelines.repair.plan import (
    COMPUTE_LAG,
    CONSUMPTIONS,
    DERIVED_TABLES,
    EDGES,
    KEYS,
    LAG,
    MINUTES,
    TABLES_OF_COMMITS,
    RepairPlan,
    check_has_no_links,
    find_table_damages,
    is_rebuilt_from_files,
    is_topic_table,
    must_recount_minutes,
    reason_not_updatable,
    reason_to_make_topic_table_again,
    reason_to_rebuild_keys,
)
from commitlake.pipelines.repair.refill_from_stores import SuspectRange, read_recorded_losses, restore_messages
from commitlake.pipelines.repair.repeat_runs import REPEATED, record_lost_rows, repeat_archive_runs
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import SNAPSHOT_TABLES, RowOrigin, tables_with_origin


def repair_lake(lake: Lake, plan: RepairPlan, parser_version: str, runner: Runner = HERE) -> list[str]:
    """Carry out the planned repair of a lake.

    Args:
        plan: from `plan_repair`.
        parser_version: written to new rows of `archive_runs` and `gaps`.
        runner: runs the tasks that read data files and write those of a rebuilt `message_keys`.

    Returns:
        Sentences on data that could not be recovered.

    Raises:
        UnsafeFileError: if the lake contains a link; nothing is changed then.
    """
    check_has_no_links(lake)
    aside = ReplacedFiles(lake)
    kept = [table for table in KEPT_TABLES if table in {*plan.logs, *plan.files}]
    losses = [line for table in kept for line in rebuild_from_intact_files(aside, table, plan.files.get(table, ()))]
    changed = [contents for contents in plan.contents if not undo_foreign_changes(lake, contents)]
    losses += [
        f"{one.table}: the rows that another program has changed" for one in changed if one.table not in DERIVED_TABLES
    ]
    # Before the tables that follow: only the commits of `messages` tell what they lack.
    _repair_log_of_messages(aside, plan)
    missing = losses
    # The messages of damaged data files stay counted, because they come back, or are known to be lost.
    is_wrong = plan.minutes or MINUTES in {one.table for one in changed}
    is_wrong = is_wrong or must_recount_minutes(lake, {*plan.logs, *({MINUTES} & plan.files.keys())})
    recount = [MINUTES] if is_wrong else []
    lost_rows: dict[str, int | None] = dict(plan.lacking)
    repaired = {table: list(_repair_table_of_runs(aside, table, plan, runner, lost_rows)) for table in OF_RUNS}
    missing += [line for table, lines in repaired.items() if table not in {*recount, *lost_rows} for line in lines]
    lost = read_lost_runs(lake)
    if lost and (run_ids := lost_run_ids(lake, lost)):
        for table in OF_RUNS:
            delete_rows_of_runs(lake, table, run_ids)
    missing += _restore_messages(aside, plan, runner, parser_version)
    gone = add_missing_table_files(lake, parser_version)
    missing += _restore_archive_runs(lake, plan, parser_version)
    if lost_rows and plan.stores is not None:
        missing += repeat_archive_runs(lake, lost_rows, plan.stores)
    missing += [
        f"{table}: {format_count(count, 'file')} that commits name: missing"
        for table, count in gone.items()
        if table not in {*recount, *lost_rows}
    ]
    missing += [
        f"{table}: {format_count(count, 'row')} of data files that are gone"
        for table, count in record_lost_rows(lake, {*plan.logs, *plan.files}).items()
        if not any(line.startswith(f"{table}: ") for line in missing)
    ]
    for table in SNAPSHOT_TABLES:
        if table in plan.files:
            missing += keep_earlier_snapshots(aside, table, plan.files[table])
        else:
            missing += _repair_or_start_empty(aside, table, plan, runner, "all snapshots so far")
    for table in tables_with_origin(RowOrigin.TOPICS):
        missing += _repair_or_start_empty(aside, table, plan, runner, "rows of earlier runs of 'commitlake topics'")
    missing += _repair_topic_tables(aside, plan, runner)
    missing += _restore_consumptions(aside, plan, runner)
    missing += replay_tables.repair_replay_tables(
        aside, plan.logs, lambda table: _find_damaged_files(lake, table, plan, runner)
    )
    _repair_message_keys(aside, plan, runner)
    _repair_edges(aside, plan, runner, has_wrong_rows=EDGES in {one.table for one in changed})
    missing += _move_outdated_lag_minutes(aside, plan, has_wrong_rows=LAG in {one.table for one in changed})
    if plan.recorded and not read_recorded_losses(lake) and must_recount_minutes(lake, {"messages"}):
        recount = [MINUTES]  # it may have been counted without them
    _recount_minutes(lake, recount, runner)
    return missing


def _repair_log_of_messages(aside_folder: ReplacedFiles, plan: RepairPlan) -> None:
    """Repair the Delta log of `messages`, and record how far each store is archived after that."""
    lake = aside_folder.lake
    of_messages = plan.logs.get("messages")
    if of_messages is not None:
        if plan.adoption is not None:
            write_log_of_adopted_files(aside_folder, plan.adoption, newest_finished_sequence(lake))
            lake.seal_log("messages")
        else:
            repair_log(aside_folder, of_messages, _replacement_note(lake, of_messages))
    note = find_unfinished_repair(lake)
    if note is None and plan.ahead:
        version = lake.table("messages").version() + 1
        note = {"first": version, "run_ids": [], "sequence": plan.ahead, "goes_back": True}
    if note is not None:
        commit_repair(lake, note)


def _restore_messages(
    aside_folder: ReplacedFiles, plan: RepairPlan, runner: Runner, parser_version: str
) -> Iterator[str]:
    """Restore lost messages from the stores, and delete the rows of wholly lost runs from other tables.

    Yields:
        Sentences on what is lost.
    """
    lake, adoption = aside_folder.lake, plan.adoption
    others = [] if adoption is None else [SuspectRange("messages", needs_proof=True)]
    damaged = _find_damaged_files(lake, "messages", plan, runner)
    yield from restore_messages(aside_folder, damaged, others, plan.stores, runner, parser_version)
    if adoption is None:
        return
    yield from adoption.loss_sentences(sum(file.rows or 0 for file in read_table_files(lake.table("messages"))))
    if lost_ids := runs_beyond(lake, adoption):
        for table in OF_RUNS:
            delete_rows_of_runs(lake, table, lost_ids)
        yield f"{format_count(len(lost_ids), 'run is', 'runs are')} lost: {', '.join(sorted(lost_ids)[:5])}"


def _restore_archive_runs(lake: Lake, plan: RepairPlan, parser_version: str) -> Iterator[str]:
    if "archive_runs" not in {*plan.logs, *plan.files, *plan.missing_runs}:
        return
    restored = restore_runs(lake, parser_version)
    removed = sum(damage.file.rows or 0 for damage in plan.files.get("archive_runs", ()))
    if restored < removed:
        rows = format_count(removed - restored, "row")
        yield f"archive_runs: {rows} of runs that are no longer in the log of messages"


def _recount_minutes(lake: Lake, tables: Sequence[str], runner: Runner) -> None:
    if MINUTES in tables:
        backfill_minutes(lake, runner, from_scratch=True)


def _repair_table_of_runs(
    aside_folder: ReplacedFiles, table: str, plan: RepairPlan, runner: Runner, lost_rows: dict[str, int | None]
) -> Iterator[str]:
    """Repair a table to which archive runs add rows, such as `quarantine`, and yield sentences on lost rows.

    Args:
        table: name of the table.
        lost_rows: receives the number of lost rows, None if unknown, if these can be read from the stores again.

    Yields:
        Sentences on lost rows.
    """
    lake, repair = aside_folder.lake, plan.logs.get(table)
    is_repeated = plan.stores is not None and table in REPEATED
    if is_rebuilt_from_files(table, repair):
        yield from rebuild_history_table(aside_folder, table)
        return
    if repair is not None and repair.is_lost:
        aside_folder.move_log(table)
        if is_repeated:
            lost_rows[table] = None
        if table not in TABLES_OF_COMMITS:
            yield f"{table}: rows that are in no commit of messages"
        return
    if repair is not None:
        named = files_named_by_commits(commits_after(lake, 0), table)
        repair_log(aside_folder, repair, {"table": table}, kept_files=named)
    damaged = _find_damaged_files(lake, table, plan, runner)
    if is_repeated and (damaged or (repair is not None and repair.loses_versions)):
        lost_rows[table] = sum(damage.file.rows or 0 for damage in damaged)
    yield from _remove_damaged_files(aside_folder, table, damaged)


def _restore_consumptions(aside_folder: ReplacedFiles, plan: RepairPlan, runner: Runner) -> Iterator[str]:
    """Repair `consumptions`, and read again what the stores' consume logs still have."""
    if CONSUMPTIONS not in {*plan.logs, *plan.files}:
        return
    lake, gone = aside_folder.lake, "records that the stores' consume logs no longer have"
    known = None if CONSUMPTIONS in plan.logs else _count_rows(lake, CONSUMPTIONS)
    missing = list(_repair_or_start_empty(aside_folder, CONSUMPTIONS, plan, runner, gone))
    if plan.stores is None:
        yield from missing
        return
    problems = follow_consume_logs(lake, plan.stores.stores).problems
    yield from (f"{CONSUMPTIONS}: {problem}" for problem in problems)
    if known is None:
        yield from missing if plan.logs[CONSUMPTIONS].is_lost else ()
    elif (lost := known - _count_rows(lake, CONSUMPTIONS)) > 0:
        yield f"{CONSUMPTIONS}: {format_count(lost, 'record')} that the stores' consume logs no longer have"


def _count_rows(lake: Lake, name: str) -> int:
    """Return the number of rows of a table, as its Delta log states it; 0 if there is no such table."""
    table = lake.find(name)
    return 0 if table is None else sum(file.rows or 0 for file in read_table_files(table))


def _repair_or_start_empty(
    aside_folder: ReplacedFiles, table: str, plan: RepairPlan, runner: Runner, loss_text: str
) -> Iterator[str]:
    """Repair a table's Delta log; start an empty table if that is impossible or data files are damaged.

    Args:
        table: name of the table.
        loss_text: what is lost if it goes back to an earlier version, or starts empty.

    Yields:
        What is lost.
    """
    repair = plan.logs.get(table)
    if is_rebuilt_from_files(table, repair):
        yield from rebuild_history_table(aside_folder, table)
        return
    if repair is not None and not repair.is_lost:
        repair_log(aside_folder, repair, {"table": table})
        if repair.loses_versions:
            yield f"{table}: {loss_text}"
    if (repair is not None and repair.is_lost) or _find_damaged_files(aside_folder.lake, table, plan, runner):
        aside_folder.move_table(table)
        yield f"{table}: {loss_text}"


def _repair_topic_tables(aside_folder: ReplacedFiles, plan: RepairPlan, runner: Runner) -> Iterator[str]:
    """Repair the typed tables of topics, or move them aside: `commitlake topics` makes them again from messages.

    Yields:
        Sentences on tables that were moved aside.
    """
    lake, repairs = aside_folder.lake, {table: plan.logs[table] for table in plan.logs if is_topic_table(table)}
    lost = {table for table, repair in repairs.items() if repair.is_lost}
    lost |= {table for table in plan.files if is_topic_table(table)}
    for table in repairs.keys() - lost:
        repair_log(aside_folder, repairs[table], {"table": table})
        if _find_damaged_files(lake, table, plan, runner):
            lost.add(table)
    for table in {*lake.list_topic_tables()} - lost:
        if plan.adoption is not None or reason_to_make_topic_table_again(lake, table):
            lost.add(table)
    for table in sorted(lost):
        aside_folder.move_table(table)
        yield f"{table}: its rows; 'commitlake topics' makes them again, except those whose messages or bodies are gone"


def _find_damaged_files(lake: Lake, table: str, plan: RepairPlan, runner: Runner) -> Sequence[DataDamage]:
    """Return a table's damaged data files, which are searched again if its log was repaired."""
    if table not in plan.logs:
        return plan.files.get(table, ())
    return find_table_damages(lake, table, runner, is_deep=True)


def _remove_damaged_files(aside_folder: ReplacedFiles, table: str, damages: Sequence[DataDamage]) -> Iterator[str]:
    """Remove damaged data files from a table that is derived from `messages`."""
    if not damages:
        return
    rows = sum(damage.file.rows or 0 for damage in damages)
    removed = [damage.file for damage in damages]
    # Out of the table first, then moved. The other way round, a table would name a file that is gone.
    replace_table_files(aside_folder.lake, table, removed, [], changes_data=True, note=make_repair_note(rows))
    for damage in damages:
        aside_folder.move_file(f"{table}/{unquote(damage.file.path)}")
    if table not in TABLES_OF_COMMITS:
        yield f"{table}: {format_count(rows, 'row')} of {format_count(len(damages), 'damaged data file')}"


def _repair_message_keys(aside_folder: ReplacedFiles, plan: RepairPlan, runner: Runner) -> None:
    lake = aside_folder.lake
    try:
        wrong = (
            {KEYS} & {*plan.logs, *plan.files}
            or plan.keys
            or plan.adoption is not None
            or reason_to_rebuild_keys(lake, runner, is_deep=True)
        )
    except (LogDamagedError, VersionsError, OSError, pa.ArrowException):
        wrong = True
    if wrong:
        aside_folder.move_table(KEYS)
        follow_keys(lake, runner)


def _repair_edges(aside_folder: ReplacedFiles, plan: RepairPlan, runner: Runner, *, has_wrong_rows: bool) -> None:
    lake = aside_folder.lake
    if not lake.has_log(EDGES) and EDGES not in {*plan.logs, *plan.files}:
        return
    is_damaged = bool({EDGES, CONSUMPTIONS, "messages"} & {*plan.logs, *plan.files})
    is_changed = has_wrong_rows or is_damaged or plan.adoption is not None or plan.recorded
    if is_changed or is_ahead_of_messages(lake) or reason_not_updatable(lake, followed_edges(lake)):
        aside_folder.move_table(EDGES)
        follow_edges(lake, runner)


def _move_outdated_lag_minutes(aside_folder: ReplacedFiles, plan: RepairPlan, *, has_wrong_rows: bool) -> Iterator[str]:
    """Move `lag_minutes` aside, to be computed again, if it or its source tables are damaged or may have changed.

    Yields:
        A sentence about it.
    """
    lake = aside_folder.lake
    if not lake.has_log(LAG) and LAG not in {*plan.logs, *plan.files}:
        return
    is_damaged = bool({LAG, "messages", *HISTORIES} & {*plan.logs, *plan.files})
    is_other = plan.adoption is not None or plan.recorded or plan.ahead or plan.lost or plan.unfinished
    if has_wrong_rows or is_damaged or is_other:
        aside_folder.move_table(LAG)
        yield f"{LAG}: all minutes: {COMPUTE_LAG}"


def _replacement_note(lake: Lake, repair: LogRepair) -> dict[str, Any]:
    """Return the metadata of a commit that replaces log entries of `messages`: the runs in these entries."""
    folder = lake.open_log("messages")
    run_ids, sequence = set(), 0
    for data in read_lost_entries(folder, repair.versions if repair.loses_versions else ()):
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
        "goes_back": repair.loses_versions,
    }
