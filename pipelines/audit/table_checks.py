"""Checks the tables themselves: their data files, and whether the tables that follow match `messages`.

data files       each exists, has the size and the footer that the log has; with --deep, all pages are intact
archive_runs     one row for each commit of a run, with the commit's counts, and no other row
gaps, quarantine as many rows of each run as its commit counted
profiles and     as many rows of each run as its commit names, profiles with all checksums that the run wrote
  others
message_keys     exactly the keys of messages
contents         the rows of each other table are those that this project has written, by their sum
edges            a step for each dead letter, each delayed record, and each half message
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after
from commitlake.connectors.lake.delta_log.check import LogDamagedError, find_forged_entries
from commitlake.connectors.lake.delta_log.entries import parse_json
from commitlake.connectors.lake.erasures import NOTHING_ERASED, read_erased_messages
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.lost_ranges import describe_lost_ranges, lost_ranges
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.compared_sides import AuditSides
from commitlake.pipelines.audit.window_profiles import SHOWN
from commitlake.pipelines.edges.progress import APPLICATION_ID as EDGES_ID
from commitlake.pipelines.edges.progress import count_records_by_kind
from commitlake.pipelines.message_keys.progress import APPLICATION_ID
from commitlake.pipelines.repair.commits import count_lost_rows
from commitlake.pipelines.repair.content_checksums import SUMMED_TABLES, sum_table_contents
from commitlake.pipelines.repair.data_file_check import find_damaged_files
from commitlake.pipelines.topic_minutes.progress import covered_sequence
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import FOLLOWING, LAKE_TABLES
from commitlake.schemas.tables.profile import OPTIONAL_CHECKSUMS

REPAIR = Advice("{} shows what can be recovered", ("maintain --lake {lake} --repair --dry-run",))
"""Advice on damaged tables, and on messages that a place lacks; its place is `lake`."""
_MINUTES = "topic_minutes"
_NEEDED = frozenset({"messages", "profiles", "archive_runs"})  # tables that comparisons need


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Faults of one kind that were found in a table.

    Attributes:
        table: name of the table.
        count: number of wrong files or rows.
        what: the plural of what is counted, such as "runs" or "kinds of records".
        notes: sentences on the first of them.
    """

    table: str
    count: int
    what: str
    notes: Sequence[str] = field(default=())

    @property
    def counted_text(self) -> str:
        """The count with its noun, such as "1 run" or "3 kinds of records"."""
        return format_count(self.count, re.sub(r"s\b", "", self.what, count=1), self.what)


def find_damaged_table_files(lake: Lake, *, is_deep: bool, runner: Runner = HERE) -> list[TableFinding]:
    """Find, in each table, data files that do not match the Delta log, and forged entries of the log.

    Args:
        is_deep: True to read every page.
    """
    lake, found = lake.pin_versions(), []
    for table in (*LAKE_TABLES, *lake.list_topic_tables(includes_lost=True)):
        try:
            if lake.find(table) is None:
                continue
        except LogDamagedError as error:
            if table in LAKE_TABLES:
                raise
            found.append(TableFinding(table, 1, "logs", [str(error)]))  # of its topic only: the audit goes on
            continue
        damages = sorted(map(str, find_damaged_files(lake, table, is_deep=is_deep, runner=runner)))
        if damages:
            found.append(TableFinding(table, len(damages), "data files", damages[:SHOWN]))
        folder = lake.open_log(table)
        outside = [str(damage) for damage in find_forged_entries(folder, folder.read_listing())]
        if outside:
            found.append(TableFinding(table, len(outside), "entries of the log", outside[:SHOWN]))
    return found


def prevents_comparison(findings: Sequence[TableFinding]) -> bool:
    """Return whether any of the findings is on a table that the audit needs to compare messages."""
    return any(finding.table in _NEEDED for finding in findings)


def find_lost_messages(lake: Lake, span: AuditSpan) -> list[TableFinding]:
    """Return the ranges of logs whose messages were lost because no repair could restore them, in a time range."""
    lost = lost_ranges(lake, (), span.first, span.last)
    return [TableFinding("messages", len(lost), "lost ranges", describe_lost_ranges(lost))] if lost else []


def compare_archive_runs(lake: Lake, moment: LakeState, damaged_tables: Collection[str] = ()) -> list[TableFinding]:
    """Check that `archive_runs`, `gaps` and `quarantine` have as many rows as the commits of `messages` recorded.

    Args:
        moment: moment to compare.
        damaged_tables: tables that cannot be read, which are left out.
    """
    if {"archive_runs", "gaps", "quarantine"} & moment.expired.keys():
        return []
    commits = [made for made in commits_after(lake, 0) if made.sequence <= moment.commit.sequence]
    wrong = list(_find_wrong_runs(lake, commits, moment.commit.sequence))
    found = [TableFinding("archive_runs", len(wrong), "runs", wrong[:SHOWN])] if wrong else []
    for table in sorted({"gaps", "quarantine"} - {*damaged_tables}):
        counts = Counter(row["run_id"] for row in _table_rows(lake, table, ["run_id"]))
        differing = [
            (made.sequence, expected, counts[made.run_id])
            for made in commits
            if made.counts is not None and (expected := getattr(made.counts, _COUNTED[table])) != counts[made.run_id]
        ]
        fewer = sum(expected - there for _, expected, there in differing)
        # No more rows are missing than an earlier repair has recorded as lost, so nothing new is reported.
        if differing and not 0 < fewer <= _rows_lost_in_repairs(lake, table):
            wrong = [
                f"run {sequence}: expected {format_count(expected, 'row')}, found {there}"
                for sequence, expected, there in differing
            ]
            found.append(TableFinding(table, len(wrong), "runs", wrong[:SHOWN]))
    others = [table for table in FOLLOWING if table not in {*_COUNTED, *moment.expired, *damaged_tables}]
    compared = ((table, list(_wrong_row_counts(lake, table, commits))) for table in others)
    return found + [TableFinding(table, len(wrong), "runs", wrong[:SHOWN]) for table, wrong in compared if wrong]


def _wrong_row_counts(lake: Lake, table: str, commits: Sequence[ArchiveCommit]) -> Iterator[str]:
    """Yield a sentence on each run of which a table has more or fewer rows than its commit recorded.

    Rows that a repair removed and reported are not reported again. In `topic_minutes`, a repair counts all rows again
    without assigning them to runs, and an erasure counts minutes again, whose messages may have other tags then.
    """
    named = {made.run_id: made for made in commits if made.files.get(table)}
    if not named:
        return
    found = {row["run_id"]: row for row in _read_counts_by_run(lake, table)}
    recounted = covered_sequence(lake) if table == _MINUTES and found else 0
    erased = read_erased_messages(lake) if table == _MINUTES else NOTHING_ERASED
    wrong, fewer = [], 0
    for run_id, made in named.items():
        row = found.get(run_id, {})
        rows, there = sum(file.rows for file in made.files[table]), row.get("count", 0)
        if there <= rows and made.sequence <= recounted:
            continue
        if any(erased.has_any_in_range(broker, part.start, part.end) for broker, part in made.ranges.items()):
            continue
        if there != rows:
            wrong.append(f"run {made.sequence}: expected {format_count(rows, 'row')}, found {there}")
            fewer += rows - there
            continue
        for name, count in _count_written_checksums(made.files[table]).items():
            if row.get(name, 0) != count:
                expected = format_count(count, "value")
                yield f"run {made.sequence}: expected {expected} of {name}, found {row.get(name, 0)}"
    if wrong and not 0 < fewer <= _rows_lost_in_repairs(lake, table):
        yield from wrong


def _rows_lost_in_repairs(lake: Lake, table: str) -> int:
    try:
        return count_lost_rows(lake, table)
    except NoTableError:
        return 0


def _read_counts_by_run(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Return how many rows of each run a table has, and in how many of them each optional checksum is set."""
    try:
        opened = lake.table(table)
    except NoTableError:
        return []
    columns = {field.name for field in opened.schema().fields} & set(OPTIONAL_CHECKSUMS)
    counts = ", ".join(["count(*) AS count", *(f"count({name}) AS {name}" for name in sorted(columns))])
    answer = run_sql(opened, table, f"SELECT run_id, {counts} FROM {table} GROUP BY run_id").read_all()
    rows: list[dict[str, Any]] = rows_to_dicts(answer)
    return rows


def _count_written_checksums(files: Sequence[DataFile]) -> dict[str, int]:
    """Return, for each optional checksum, how many rows of a run's data files have a value for it."""
    known = [(file.rows, parse_json(file.statistics).get("nullCount", {})) for file in files]
    return {
        name: sum(rows - nulls[name] for rows, nulls in known)
        for name in OPTIONAL_CHECKSUMS
        if all(name in nulls for _, nulls in known)
    }


_COUNTED = {"gaps": "gaps", "quarantine": "quarantined"}


def _find_wrong_runs(lake: Lake, commits: Sequence[ArchiveCommit], last_sequence: int) -> Iterator[str]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in _table_rows(lake, "archive_runs", ["sequence", "run_id", "messages", "bytes", "quarantined", "gaps"]):
        rows.setdefault(row["run_id"], []).append(row)
    for made in commits:
        found = rows.get(made.run_id, [])
        if len(found) != 1:
            yield f"run {made.sequence}: expected a row, found {len(found)}"
            continue
        expected: dict[str, int] = {"sequence": made.sequence, "bytes": made.log_bytes}
        if made.counts is not None:
            expected |= {name: getattr(made.counts, name) for name in ("messages", "quarantined", "gaps")}
        for name, value in expected.items():
            if found[0][name] != value:
                yield f"run {made.sequence}: expected {name} {value}, found {found[0][name]}"
    named = {made.run_id for made in commits}
    first = commits[0].sequence if commits else 0
    for run_id, found in rows.items():
        for row in found:
            if run_id not in named and first <= row["sequence"] <= last_sequence:
                yield f"run {row['sequence']}: expected no row, as messages has no commit of {run_id}, found one"


def _table_rows(lake: Lake, table: str, columns: list[str]) -> list[dict[str, Any]]:
    opened = lake.find(table)
    return [] if opened is None else list(rows_to_dicts(opened.to_pyarrow_table(columns=columns)))


def compare_message_keys(sides: AuditSides) -> tuple[list[TableFinding], str]:
    """Compare `message_keys` with the keys of `messages`; return findings, and a note if that was not possible."""
    if {"messages", "message_keys"} & sides.moment.expired.keys():
        return [], "message_keys is not compared: some of its rows, or of those of messages, have expired"
    table = sides.lake.unpin_versions().find("message_keys")  # it follows later than the tables of the moment
    if table is None:
        return [], "message_keys is not compared: it has not followed messages yet"
    followed = table.transaction_version(APPLICATION_ID)
    if followed is None or not sides.moment.committed <= followed:
        return [], f"message_keys is not compared: it follows messages only to version {followed}"
    if followed > sides.moment.version:
        return [], "message_keys is not compared: a run has added messages meanwhile"
    count, shown = sides.compare_message_keys(table.version())
    return ([TableFinding("message_keys", count, "keys", shown)] if count else []), ""


def compare_edges(lake: Lake, moment: LakeState) -> tuple[list[TableFinding], str]:
    """Compare, by kind of record, the number of records in `messages` with the number that `edges` has.

    Returns findings, and a note if the comparison was not possible.
    """
    if {"messages", "edges"} & moment.expired.keys():
        return [], "edges is not compared: some of its rows, or of those of messages, have expired"
    table = lake.find("edges")
    if table is None:
        return [], ""
    followed = table.transaction_version(EDGES_ID)
    if followed is None or not moment.committed <= followed:
        return [], f"edges is not compared: it follows messages only to version {followed}"
    if followed > moment.version:
        return [], "edges is not compared: a run has added messages meanwhile"
    counts = count_records_by_kind(lake.table_at("messages", moment.version), table)
    wrong = [count for count in counts if count.expected != count.found]
    lines = [
        f"kind {one.kind}: expected steps of {format_count(one.expected, 'record')}, found {one.found:,}"
        for one in wrong
    ]
    return ([TableFinding("edges", len(wrong), "kinds of records", lines)] if wrong else []), ""


def compare_contents(
    lake: Lake, damaged_tables: Collection[str], runner: Runner
) -> tuple[list[TableFinding], list[str]]:
    """Find tables with other rows than CommitLake has written, by checksums; `messages` and its keys are left out.

    Returns findings, and notes on tables that could not be compared.

    Args:
        damaged_tables: tables that cannot be read, which are left out.
    """
    found, notes = [], []
    for contents in sum_table_contents(lake, [table for table in SUMMED_TABLES if table not in damaged_tables], runner):
        if contents.has_difference:
            found.append(TableFinding(contents.table, 1, "tables of other rows", contents.difference_sentences(SHOWN)))
        elif contents.expected is None and contents.rows:
            notes.append(
                f"{contents.table}: changes of its rows by other programs are not noticed yet, because an earlier "
                "version of CommitLake has written some: 'commitlake maintain' seals them"
            )
    return found, notes
