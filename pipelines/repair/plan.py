"""Damages of a lake, and how each table is repaired.

`messages` and the tables of replays return to an earlier version, derived tables are rebuilt or counted again, and
tables that only hold changes start empty. `topic_minutes` is counted again from `messages` if the two may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.added_files import added_files
from commitlake.connectors.lake.archive_commits import commits_after, read_last_commit
from commitlake.connectors.lake.archive_run_completion import list_runs_missing_in_archive_runs
from commitlake.connectors.lake.delta_log.check import LogDamage
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.delta_log.files import entry_name
from commitlake.connectors.lake.delta_log.versions import VersionGoneError, VersionsError
from commitlake.connectors.lake.erasures import is_erasures_table_missing
from commitlake.connectors.lake.follower_progress import last_finished_sequence, missing_runs
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake
from commitlake.connectors.lake.paths import check_table_links
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.message_keys.check import check_keys
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.repair import replay_tables
from commitlake.pipelines.repair.commits import find_unfinished_repair, read_lost_runs
from commitlake.pipelines.repair.content_checksums import SUMMED_TABLES, TableContents, sum_table_contents
from commitlake.pipelines.repair.data_file_check import DataDamage, find_damaged_files
from commitlake.pipelines.repair.delta_log import LogRepair, plan_log_repair
from commitlake.pipelines.repair.delta_log_rebuild import FileAdoption, find_adoptable_files
from commitlake.pipelines.repair.derived_tables import OF_RUNS, lost_run_ids
from commitlake.pipelines.repair.history_tables import (
    HISTORIES,
    KEPT_TABLES,
    REBUILD_TEXT,
    TOPIC_SCHEMAS,
)
from commitlake.pipelines.repair.refill_from_stores import (
    RefillStores,
    SuspectRange,
    read_archived_counts,
    read_recorded_losses,
)
from commitlake.pipelines.repair.repeat_runs import REPEATED, count_missing_rows
from commitlake.pipelines.topic_minutes.progress import covered_sequence
from commitlake.pipelines.topics.progress import read_topic_progress
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import FOLLOWING, LAKE_TABLES, SNAPSHOT_TABLES, RowOrigin, tables_with_origin

KEYS = "message_keys"
MINUTES = "topic_minutes"
EDGES = "edges"
CONSUMPTIONS = "consumptions"
LAG = "lag_minutes"
COMPUTE_LAG = "'commitlake archive --backfill lag_minutes' computes it again"
"""What is to be done about `lag_minutes` after a repair has moved it aside."""
_COUNTED_AGAIN = "the table is counted again from messages; if some messages have expired, its rows are lost instead"
_STARTS_EMPTY = (
    "the table is moved aside and starts empty with the next snapshot, because each of its rows holds only changes"
)
_KEEPS_EARLIER = (
    "is moved aside; earlier snapshots are kept; later ones of its brokers are lost: they hold changes only"
)
_FROM_COMMITS = "no version of it is intact: it is moved aside and rebuilt from the commits of messages"
_READ_AGAIN = "the table is moved aside; the next archive run reads again what the stores' consume logs still have"
_MOVED_ASIDE = f"the table is moved aside; {COMPUTE_LAG}"
_STARTS_WITH_NEXT_RUN = "the table is moved aside, and starts with the next run of 'commitlake topics'"
_MADE_AGAIN = (
    "the table is moved aside; the next 'commitlake topics' makes it again from messages that still have bodies"
)
_REPAIRS = {
    **dict.fromkeys(tables_with_origin(RowOrigin.TOPICS), _STARTS_WITH_NEXT_RUN),
    MINUTES: _COUNTED_AGAIN,
    LAG: _MOVED_ASIDE,
    CONSUMPTIONS: _READ_AGAIN,
    **dict.fromkeys(SNAPSHOT_TABLES, _STARTS_EMPTY),
    **replay_tables.BEGINS_EMPTY,
}
TABLES_OF_COMMITS = ("archive_runs",)  # all of their rows are in the commits of messages
DERIVED_TABLES = (EDGES, MINUTES, LAG)
_MAX_NAMED = 5  # number of wrong files of a table that the plan names
TABLES = tuple(LAKE_TABLES)
"""All tables: each can be rebuilt, return to an earlier version, or start empty."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Damage found in a lake, and how to repair it.

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
        lacking: by table, the number of rows that earlier repairs have recorded as lost, if there are stores.
        stores: the stores; None for none.
        contents: the tables with other rows than this project has written.
        topics: by typed table of a topic, the reason to make it again although it is intact.
    """

    logs: Mapping[str, LogRepair] = field(default_factory=dict)
    files: Mapping[str, Sequence[DataDamage]] = field(default_factory=dict)
    unfinished: bool = False
    lost: int = 0
    keys: str = ""
    minutes: str = ""
    adoption: FileAdoption | None = None
    ahead: int = 0
    missing_runs: Mapping[str, int] = field(default_factory=dict)
    recorded: Sequence[SuspectRange] = ()
    lacking: Mapping[str, int] = field(default_factory=dict)
    stores: RefillStores | None = None
    contents: Sequence[TableContents] = ()
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
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
            or self.topics
        )

    def plan_lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        for table, repair in self.logs.items():
            for damage in repair.damages:
                yield f"{table}: {damage}"
            if table == "messages" and self.adoption is not None:
                yield from (f"  {line}" for line in self.adoption.summary_sentences())
            else:
                yield f"  {_log_repair_text(table, repair)}"
        for table, damages in self.files.items():
            for found in damages:
                yield f"{table}: data file {found}"
            yield f"  {_file_repair_text(table, self.stores)}"
        yield from self._row_difference_lines()
        recorded = [("messages", f"messages of {lost.name}") for lost in self.recorded]
        recorded += [(table, format_count(count, "row")) for table, count in self.lacking.items()]
        for table, what in recorded:
            yield f"{table}: an earlier repair has recorded {what} as lost"
            yield f"  {_file_repair_text(table, self.stores)}"

    def _row_difference_lines(self) -> Iterator[str]:
        """Yield lines on tables with intact files but other rows than CommitLake has written."""
        if self.unfinished:
            yield "messages: an earlier repair was interrupted; it is completed"
        if self.ahead:
            yield f"messages has lost its newest commits: archive_runs has runs up to {self.ahead}"
            yield "  the rows of these runs are deleted from the other tables; the next archive run archives them again"
        for table, count in self.missing_runs.items():
            runs = format_count(count, "run is", "runs are")
            yield f"{table}: {runs} missing that messages has; they are added again"
        if self.lost:
            yield f"rows of {format_count(self.lost, 'run')} that messages has lost are deleted from the other tables"
        for table, reason in ((KEYS, self.keys), (MINUTES, self.minutes)):
            if reason:
                yield f"{table}: {reason}: it is made again from messages"
        for table, reason in self.topics.items():
            yield f"{table}: {reason}"
            yield f"  {_MADE_AGAIN}"
        yield from chain.from_iterable(map(_content_difference_lines, self.contents))


def _content_difference_lines(contents: TableContents) -> Iterator[str]:
    yield from (f"{contents.table}: {line}" for line in contents.difference_sentences(_MAX_NAMED))
    ways = {
        MINUTES: "is counted again from messages",
        EDGES: "is rebuilt from messages",
        LAG: f"is moved aside, and {COMPUTE_LAG}",
    }
    way = ways.get(contents.table, "keeps the rows that it has now")
    yield f"  the changes are undone if the files from before are still there; if not, the table {way}"


def _log_repair_text(table: str, repair: LogRepair) -> str:
    if table in {LAG, *KEPT_TABLES} or is_rebuilt_from_files(table, repair):
        return _MOVED_ASIDE if table == LAG else REBUILD_TEXT
    if repair.is_lost or repair.loses_versions:
        return _version_repair_text(table, repair)
    if repair.undone and repair.first is None:
        return "entries of another program are moved aside, and replaced by ones that change nothing"
    if repair.writes_first:
        return "entry 0, which defines the table's columns, is written again"
    if repair.first is not None:
        return "the entry is moved aside; a checkpoint has its contents"
    return "the checkpoint is moved aside; the entries of the log have its contents"


def _version_repair_text(table: str, repair: LogRepair) -> str:
    if repair.is_lost:
        return _MADE_AGAIN if is_topic_table(table) else _REPAIRS.get(table, _FROM_COMMITS)
    assert repair.first is not None
    continues = table in {"messages", CONSUMPTIONS}
    more = "the next archive run continues from there" if continues else "missing rows are then added again"
    if is_topic_table(table):
        more = "the next 'commitlake topics' adds the messages since then again"
    if table in tables_with_origin(RowOrigin.TOPICS):
        more = "the next 'commitlake topics' adds the misfits of the run before it again"
    more = replay_tables.CONTINUES.get(table, more)
    return f"{table} is restored to version {repair.first - 1}, the last intact one; {more}"


def is_topic_table(table: str) -> bool:
    """Return whether a table is the typed table of a topic."""
    return table.startswith(f"{TOPIC_TABLES}/")


def is_rebuilt_from_files(table: str, repair: LogRepair | None) -> bool:
    """Return whether a table is rebuilt from its data files: its rows never change, and its log lost versions."""
    return repair is not None and table in {*HISTORIES, TOPIC_SCHEMAS} and (repair.is_lost or repair.loses_versions)


def _file_repair_text(table: str, stores: RefillStores | None) -> str:
    if is_topic_table(table):
        return _MADE_AGAIN
    ways = {
        **_REPAIRS,
        **replay_tables.TAKEN_OUT,
        **dict.fromkeys(KEPT_TABLES, REBUILD_TEXT),
        **dict.fromkeys(SNAPSHOT_TABLES, _KEEPS_EARLIER),
        **dict.fromkeys((KEYS, EDGES), "the table is rebuilt from messages"),
        "messages": "is moved aside; its range of the log is added to gaps: --store reads its messages from a store",
    }
    if stores is not None:
        ways |= dict.fromkeys(REPEATED, "its rows are read from the stores again")
        ways["messages"] = "its messages are read from the stores again; what these no longer have is added to gaps"
    return ways.get(table, "is moved aside; its rows are lost, except those in the commits of messages")


def plan_repair(
    lake: Lake,
    *,
    is_deep: bool = True,
    stores: RefillStores | None = None,
    runner: Runner = HERE,
) -> RepairPlan:
    """Find the damage in a lake, and plan its repair.

    Args:
        is_deep: True to read every page of every data file, and to compare `message_keys` with `messages`.
        stores: stores from which messages of damaged data files are read again; None for none.

    Raises:
        UnsafeFileError: if the lake contains a link.
    """
    check_has_no_links(lake)
    tables = (*TABLES, *lake.list_topic_tables(includes_lost=True))
    logs = {table: repair for table in tables if (repair := plan_log_repair(lake, table))}
    # Tables that follow `messages` prove that there was one.
    if "messages" not in logs and not lake.has_log("messages") and lake.list_follower_tables():
        gone = LogDamage(entry_name(0), 0, "expected the log of a table, found none")
        logs["messages"] = LogRepair("messages", [gone], is_lost=True)
    if "erasures" not in logs and "messages" not in logs and is_erasures_table_missing(lake):
        gone = LogDamage(entry_name(0), 0, "expected the log of a table, as messages records erasures, found none")
        logs["erasures"] = LogRepair("erasures", [gone], is_lost=True)
    files = {}
    for table in tables:
        if table not in logs:
            damages = find_table_damages(lake, table, runner, is_deep=is_deep)
            if damages:
                files[table] = damages
    intact = [table for table in SUMMED_TABLES if table not in {*logs, *files}] if is_deep else []
    contents = [found for found in sum_table_contents(lake, intact, runner) if found.has_difference]
    if (repair := logs.get("messages")) is not None:
        if (
            repair.loses_versions
            and not repair.is_lost
            and not _has_all_files(lake, "messages", (repair.first or 0) - 1)
        ):
            logs["messages"] = repair = replace(repair, is_lost=True)  # its data files are all that is left
        # From here on, other tables would be compared with `messages`, which is not intact yet.
        adoption = find_adoptable_files(lake) if repair.is_lost else None
        return RepairPlan(logs, files, adoption=adoption, stores=stores, contents=contents)
    recorded = read_recorded_losses(lake) if stores is not None and "gaps" not in {*logs, *files} else ()
    if "messages" in files:
        return RepairPlan(logs, files, recorded=recorded, stores=stores, contents=contents)
    is_known = stores is not None and "archive_runs" not in {*logs, *files}
    lacking = (
        count_missing_rows(lake, [table for table in REPEATED if table not in {*logs, *files}]) if is_known else {}
    )
    lost = _count_lost_runs(lake) if not set(OF_RUNS) & (logs.keys() | files.keys()) else 0
    keys = (
        ""
        if {KEYS, "messages"} & (logs.keys() | files.keys())
        else reason_to_rebuild_keys(lake, runner, is_deep=is_deep)
    )
    unfinished = find_unfinished_repair(lake) is not None
    ahead = 0 if unfinished or "archive_runs" in logs else _newest_lost_run(lake)
    missing = _count_missing_runs(lake, {*logs, *files})
    topics = {
        table: reason
        for table in tables
        if is_topic_table(table)
        and table not in {*logs, *files}
        and (reason := reason_to_make_topic_table_again(lake, table))
    }
    # With other damages, a difference in `topic_minutes` may have another cause, which is repaired first.
    is_whole = is_deep and not (missing or lost or unfinished or ahead or {MINUTES, "gaps"} & {*logs, *files})
    return RepairPlan(
        logs,
        files,
        unfinished,
        lost,
        keys,
        reason_to_recount_minutes(lake) if is_whole else "",
        ahead=ahead,
        missing_runs=missing,
        recorded=recorded,
        lacking={table: count for table, count in lacking.items() if table not in missing},
        stores=stores,
        contents=contents,
        topics=topics,
    )


def _has_all_files(lake: Lake, table: str, version: int) -> bool:
    """Return whether a version of a table has data files and all of them still exist."""
    try:
        paths = read_file_actions(lake.table_at(table, version)).column("path").to_pylist()
    except DeltaError:
        return False
    infos = lake.open_folder(table).get_file_info([unquote(path) for path in paths])
    return bool(infos) and all(info.is_file for info in infos)


def check_has_no_links(lake: Lake) -> None:
    """Raise an error if the lake has symbolic links: a repair would move the files that they lead to."""
    lake.check_links()
    for table in (*TABLES, TOPIC_TABLES):
        check_table_links(lake.uri(table))


def find_table_damages(lake: Lake, table: str, runner: Runner, *, is_deep: bool) -> list[DataDamage]:
    """Return the damaged data files of a table, sorted by path."""
    found = find_damaged_files(lake, table, is_deep=is_deep, runner=runner)
    return sorted(found, key=lambda damage: damage.file.path)


def _newest_lost_run(lake: Lake) -> int:
    """Return the number of the newest run that `archive_runs` has and `messages` has lost; 0 if none."""
    finished = last_finished_sequence(lake, "archive_runs")
    last = read_last_commit(lake)
    return finished if finished > (last.sequence if last else 0) else 0


def _count_missing_runs(lake: Lake, damaged_tables: Collection[str]) -> dict[str, int]:
    """Count, for each derived table, the finished archive runs whose rows it lacks."""
    commits = commits_after(lake, 0)
    found = {
        table: len(runs)
        for table in FOLLOWING
        if table not in damaged_tables
        and "archive_runs" not in damaged_tables
        and (runs := missing_runs(lake, table, commits))
    }
    # Old rows that have been dropped are not missing.
    is_kept = "archive_runs" not in read_expiries(lake.table("messages"))
    if is_kept and "archive_runs" not in damaged_tables and (count := len(list_runs_missing_in_archive_runs(lake))):
        found["archive_runs"] = count
    return found


def _count_lost_runs(lake: Lake) -> int:
    """Count the runs that `messages` has lost but `archive_runs` still lists."""
    lost = read_lost_runs(lake)
    named = {run_id for one in lost for run_id in one.run_ids}
    return len(lost_run_ids(lake, lost) - named) if lost else 0


def reason_to_make_topic_table_again(lake: Lake, table: str) -> str:
    """Return the reason why the typed table of a topic must be made again; empty if there is none."""
    followed = read_topic_progress(lake.find(table)).version
    return next(
        (
            f"it follows version {followed} of messages, which is lost"
            for lost in read_lost_runs(lake)
            if lost.first <= followed < lost.last
        ),
        "",
    )


def reason_to_rebuild_keys(lake: Lake, runner: Runner, *, is_deep: bool) -> str:
    """Return the reason why `message_keys` must be rebuilt; empty if there is none."""
    followed = followed_version(lake)
    for lost in read_lost_runs(lake):
        if lost.first <= followed < lost.last:
            return f"it follows version {followed} of messages, which is lost"
    if stuck := reason_not_updatable(lake, followed):
        return stuck
    if not is_deep or followed < 0:
        return ""
    check = check_keys(lake, runner=runner)
    if check.same:
        return ""
    expected = format_count(check.expected, "key")
    return check.note or f"expected {expected}, as messages has them, found {check.found:,} or different ones"


def reason_not_updatable(lake: Lake, reached_version: int) -> str:
    """Return why a table cannot be brought up to date from the changes of `messages`; empty if it can."""
    try:
        added_files(lake, reached_version)
    except VersionGoneError:  # it starts from scratch
        return ""
    except VersionsError as error:
        return str(error)
    return ""


def reason_to_recount_minutes(lake: Lake) -> str:
    """Return a sentence if `topic_minutes` counts more or fewer messages than `messages` has; else "".

    Expired messages, and those that a repair has recorded as lost, are in `topic_minutes` only. Then nothing is
    compared.

    Args:
        lake: the lake, whose logs and data files are intact.
    """
    messages = lake.table("messages")
    counted = read_archived_counts(lake)
    if not counted or MINUTES in read_expiries(messages) or read_recorded_losses(lake):
        return ""
    sql = "SELECT broker, count(*) AS messages FROM messages WHERE broker IS NOT NULL GROUP BY broker"
    there = {row["broker"]: row["messages"] for row in rows_to_dicts(run_sql(messages, "messages", sql).read_all())}
    for broker in sorted({*counted, *there}):
        expected, found = there.get(broker, 0), counted[broker].messages if broker in counted else 0
        if expected != found:
            return f"expected {format_count(expected, 'message')} of {broker}, as messages has them, found {found:,}"
    return ""


def must_recount_minutes(lake: Lake, damaged_tables: Collection[str]) -> bool:
    """Return whether `topic_minutes` must be counted again, as it is damaged or may count messages that are lost.

    It must if it was damaged, or if a backfill may have counted messages that `messages` has lost: rows of a backfill
    do not name an archive run. It must not if `messages` has dropped old rows, which `topic_minutes` still counts.

    Args:
        lake: the lake; `messages` is repaired already.
        damaged_tables: the tables that were damaged.
    """
    messages = lake.table("messages")
    if "messages" in read_expiries(messages):
        return False
    if MINUTES in damaged_tables:
        return True
    is_wrong = "messages" in damaged_tables or read_lost_runs(lake)
    return bool(is_wrong) and lake.find(MINUTES) is not None and covered_sequence(lake) > 0
