"""Runs erasures, from the request to a lake without the data in its newest state, and later to the purge.

    select    messages and their copies                     selection.py
    texts     quarantine and replays                        text_erasure.py
    begin     commit that makes the erasure valid           ledger.py
    tables    messages, message_keys, edges, replay_rows    data_file_rewriting.py
    counts    profiles and topic_minutes, as they are now   count_corrections.py
    packs     bodies                                        body_erasure.py
    hbase     updated from messages, if wanted              connectors.hbase
    erased    the counts                                    ledger.py
    purge     after the retention                           purge.py

A run that is killed at any point completes when it is run again. Before `begin_erasure`, nothing is stored, and the
same messages are selected again. After it, the table `erasures` has everything that remains to be done.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from commitlake.connectors.lake.backoff import MAX_TRIES, backoff_seconds
from commitlake.connectors.lake.erasures import ErasedMessages, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.erasure.body_erasure import (
    PackErasureCounts,
    bodies_by_pack,
    erase_bodies,
    measure_pack_erasure,
    packs_of_erasures,
)
from commitlake.pipelines.erasure.count_corrections import correct_profiles, delete_content_hashes, recount_minutes
from commitlake.pipelines.erasure.data_file_rewriting import (
    TableErasureCounts,
    add_missing_erasure_rows,
    count_rows_to_erase,
    erase_from_table,
    is_erasure_done,
    tables_with_message_data,
)
from commitlake.pipelines.erasure.ledger import (
    ErasureState,
    add_erasure_event,
    begin_erasure,
    read_erasure_rows,
    read_erasure_states,
)
from commitlake.pipelines.erasure.purge import PurgeResult, purge_old_versions
from commitlake.pipelines.erasure.selection import FoundMessages, KeysToErase, select_messages
from commitlake.pipelines.erasure.text_erasure import TABLES, erase_texts, measure_text_erasure
from commitlake.pipelines.maintenance.log_cleanup import SHORTEST_RETENTION
from commitlake.pipelines.masking.copies_of_erased import read_later_copies
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.erasures import ErasureEvent

if TYPE_CHECKING:
    from commitlake.connectors.hbase.options import HBaseOptions

MAX_MESSAGES = 1_000_000
"""Largest number of messages of one erasure, whose rows are held in memory."""
MIN_RETENTION = SHORTEST_RETENTION
"""Shortest retention if other jobs are running."""
OnStep = Callable[[str], object]


@dataclass(frozen=True)
class ErasureTarget:
    """Lake to erase from, with the runner of its tasks and its HBase table.

    Attributes:
        lake: the lake.
        parser_version: version of CommitLake, for rows of `erasures`.
        runner: runs the tasks that look for messages in files, and those that write files.
        hbase: HBase table to update; None for none, or if the next archive run updates it.
    """

    lake: Lake
    parser_version: str
    runner: Runner = HERE
    hbase: HBaseOptions | None = None


@dataclass(frozen=True)
class ErasurePlan:
    """Planned erasure: the messages to erase, and how much of the tables and packs must be rewritten.

    Attributes:
        selection: the messages.
        tables: tables that have data of them.
        packs: packs that have their bodies.
        kept_copies: True to archive later copies of the messages as they are.
        lifted: number of keys and ids whose later copies earlier erasures would erase, and this one keeps.
    """

    selection: FoundMessages
    tables: Sequence[TableErasureCounts]
    packs: PackErasureCounts
    kept_copies: bool = False
    lifted: int = 0

    @property
    def message_count(self) -> int:
        """Number of messages that the erasure would erase."""
        return int(self.selection.rows.num_rows)

    @property
    def has_nothing_to_erase(self) -> bool:
        """True if there is nothing to erase for the requested keys and ids."""
        return not self.message_count and not self.lifted and not any(work.rows for work in self.tables)


@dataclass(frozen=True)
class ErasureResult:
    """Result of an erasure: what was changed in tables, packs and HBase.

    Attributes:
        state: the erasure.
        tables: work on tables.
        packs: work on packs.
        hbase: number of messages that were updated in HBase; None if HBase was not requested.
        error: why a pack still has bodies; the erasure is unfinished then.
    """

    state: ErasureState
    tables: Sequence[TableErasureCounts] = field(default=())
    packs: PackErasureCounts = field(default_factory=PackErasureCounts)
    hbase: int | None = None
    error: PackError | None = None

    @property
    def counts(self) -> Mapping[str, Any]:
        """The counts of this result as a JSON object, to be recorded in `erasures`."""
        tables = {work.table: {"rows": work.rows, "files": work.files} for work in self.tables}
        return {"messages": self.state.messages, "tables": tables, "packs": asdict(self.packs), "hbase": self.hbase}


def plan_erasure(target: ErasureTarget, keys_to_erase: KeysToErase, *, keeps_later_copies: bool = False) -> ErasurePlan:
    """Find the messages to erase, and how many rows, files and packs the erasure would change.

    Args:
        keys_to_erase: keys and ids of the messages.
        keeps_later_copies: True to archive later copies of the messages as they are.

    Raises:
        UsageError: if there are too many messages.
        LakeError: if there is no lake, or a table of it is damaged.
    """
    selection = select_messages(target.lake, keys_to_erase, target.runner)
    if selection.rows.num_rows > MAX_MESSAGES:
        raise UsageError(
            f"{format_count(selection.rows.num_rows, 'message is', 'messages are')} to be erased, expected at most "
            f"{MAX_MESSAGES:,} at a time: use fewer keys at a time"
        )
    works = [measure_text_erasure(target.lake, table, selection.texts) for table in TABLES]
    works += [
        count_rows_to_erase(target.lake, table, selection.messages_to_erase, target.runner)
        for table in tables_with_message_data(target.lake)
    ]
    packs = measure_pack_erasure(bodies_by_pack(selection.rows), target.lake.packs)
    lifted = 0
    if keeps_later_copies:
        lifted = len(list(read_later_copies(target.lake).iterate_detail_json(selection.copies, are_copies_kept=True)))
    return ErasurePlan(selection, [work for work in works if work is not None], packs, keeps_later_copies, lifted)


def run_erasure(
    target: ErasureTarget, plan: ErasurePlan, reason: str, retention: datetime.timedelta, on_step: OnStep
) -> ErasureResult:
    """Erase the messages of a plan from all tables, packs and HBase.

    Args:
        plan: from `plan_erasure`.
        reason: reason, recorded in `erasures`.
        retention: time for which older versions of tables are kept.

    Raises:
        UsageError: if it cannot be done. Finished steps remain done.
        ConcurrentRunError: if other writers commit first on every attempt. Finished steps remain done.
        PackError: if a pack cannot be read or written.
        UnsafeFileError: if the lake contains a link.
    """
    target.lake.check_links()
    # The texts before the erasure begins: they are stored nowhere, so a run that is killed must be able to select them
    # again.
    works = []
    for table in TABLES:
        on_step(table)
        works.append(erase_texts(target.lake, table, plan.selection.texts))
    on_step("erasures")
    state = begin_erasure(
        target.lake, plan.selection.rows, reason, retention, target.parser_version, plan.selection.copies,
        keeps_later_copies=plan.kept_copies,
    )  # fmt: skip
    (outcome,) = finish_erasures(target, on_step, state_to_finish=state)
    if outcome.error is not None:
        raise outcome.error
    found = [work for work in works if work is not None and work.rows]
    return replace(outcome, tables=[*found, *outcome.tables])


def unfinished_erasures(lake: Lake) -> list[ErasureState]:
    """Return the erasures that are not complete: interrupted, made by an older version, or undone by a repair."""
    states = read_erasure_states(lake)
    tables = (*tables_with_message_data(lake), "profiles", "topic_minutes")
    return [
        state
        for state in states
        if state.is_unfinished or not all(is_erasure_done(lake, table, state.number) for table in tables)
    ]


def finish_erasures(
    target: ErasureTarget, on_step: OnStep, state_to_finish: ErasureState | None = None
) -> list[ErasureResult]:
    """Complete erasures that were recorded but interrupted.

    Args:
        state_to_finish: the erasure that has just begun; by default all unfinished ones.

    Returns:
        A result for each erasure that was unfinished, also for those that still are, because of a pack.

    Raises:
        UsageError, ConcurrentRunError: in the cases of `run_erasure`.
    """
    states = [state_to_finish] if state_to_finish else unfinished_erasures(target.lake)
    if not states:
        return []
    target.lake.check_links()
    places = read_erased_messages(target.lake)
    add_missing_erasure_rows(target.lake, places, target.parser_version)
    works = _erase_from_tables(target, places, on_step)
    on_step("profiles")
    corrected = correct_profiles(target.lake, places.number)
    on_step("topic_minutes")
    recounted = recount_minutes(target.lake, places.number)
    works += [work for work in (corrected, recounted) if work is not None]
    on_step("packs")
    packs_of = _packs_by_erasure(target.lake, states)
    packs, errors = erase_bodies(target.lake, set().union(*packs_of.values()), target.runner)
    _delete_run_page(target.lake)
    hbase = None
    if target.hbase is not None:
        on_step("HBase")
        hbase = update_hbase(target)
    outcomes = [
        ErasureResult(state, works, packs, hbase, _first_pack_error(packs_of[state.number], errors)) for state in states
    ]
    for outcome in outcomes:
        # Also for an erasure that a repair has undone: the retention begins again with the version of the new erasure.
        if outcome.error is None:
            add_erasure_event(target.lake, outcome.state, ErasureEvent.ERASED, outcome.counts, target.parser_version)
    return outcomes


def _packs_by_erasure(lake: Lake, states: Sequence[ErasureState]) -> dict[int, set[str]]:
    """Return the names of the packs with bodies of each erasure, by the erasure's number."""
    rows = read_erasure_rows(lake)
    numbers = rows.column("number").to_numpy()
    return {state.number: packs_of_erasures(rows.filter(pa.array(numbers == state.number))) for state in states}


def _first_pack_error(packs: set[str], errors: Mapping[str, PackError]) -> PackError | None:
    return next((errors[pack] for pack in sorted(packs & errors.keys())), None)


def _delete_run_page(lake: Lake) -> None:
    """Delete the HTML page of the newest archive run, which may show erased values; the next run writes a new one."""
    if lake.report_page_path is None:
        return
    try:
        Path(lake.report_page_path).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{lake.report_page_path} may show erased values, but cannot be deleted: {error.strerror}. Delete it"
        ) from None


def _erase_from_tables(
    target: ErasureTarget, erased_messages: ErasedMessages, on_step: OnStep
) -> list[TableErasureCounts]:
    works = []
    for table in tables_with_message_data(target.lake):
        on_step(table)
        work = erase_from_table(target.lake, table, erased_messages, target.runner)
        if work is not None:
            works.append(work)
    return works


def update_hbase(target: ErasureTarget) -> int:
    """Update HBase to the newest version of `messages`, delete older cells, and return the number of messages."""
    from commitlake.connectors.hbase.client import Client  # noqa: PLC0415 (happybase, only where it is wanted)
    from commitlake.connectors.hbase.errors import ConcurrentFollowError  # noqa: PLC0415
    from commitlake.connectors.hbase.table_update import follow_messages  # noqa: PLC0415

    assert target.hbase is not None
    for attempt in range(MAX_TRIES):
        try:
            done = follow_messages(target.runner, target.lake, target.hbase)
        except ConcurrentFollowError:
            if attempt == MAX_TRIES - 1:
                raise
            time.sleep(backoff_seconds(attempt))
        else:
            break
    with Client(target.hbase) as client:
        client.request_compaction()
    return done.rows


def due_erasures(states: Sequence[ErasureState], now: datetime.datetime, *, is_only_user: bool) -> list[ErasureState]:
    """Return the erasures whose data can now be deleted from older table versions.

    Args:
        states: states of all erasures.
        now: current time.
        is_only_user: True if no other process uses the lake; no retention has to pass then.
    """
    return [state for state in states if state.purge_due_at is not None and (is_only_user or state.purge_due_at <= now)]


def purge_erasures(
    target: ErasureTarget, now: datetime.datetime, on_step: OnStep, *, is_only_user: bool = False
) -> tuple[list[ErasureState], PurgeResult, PackError | None]:
    """Delete the data of all due erasures from older table versions and from packs.

    Args:
        now: current time.
        is_only_user: as for `due_erasures`.

    Returns:
        The erasures that were purged, the deleted files, and why another erasure that is due still has bodies.

    Raises:
        UsageError: if an archive run is unfinished.
        PackError: if the location of the packs cannot be used.
    """
    due = due_erasures(read_erasure_states(target.lake), now, is_only_user=is_only_user)
    if not due:
        return [], PurgeResult(), None
    on_step("packs")
    _, errors = erase_bodies(target.lake, packs_of_erasures(read_erasure_rows(target.lake)), target.runner)
    packs_of = _packs_by_erasure(target.lake, due)
    error = next((found for packs in packs_of.values() if (found := _first_pack_error(packs, errors))), None)
    due = [state for state in due if not packs_of[state.number] & errors.keys()]
    if not due:
        return [], PurgeResult(), error
    delete_content_hashes(target.lake, max(state.number for state in due))
    on_step("older versions")
    retention = datetime.timedelta() if is_only_user else max(MIN_RETENTION, min(state.retention for state in due))
    purged = purge_old_versions(target.lake, retention, now, is_only_user=is_only_user)
    for state in due:
        add_erasure_event(target.lake, state, ErasureEvent.PURGED, asdict(purged), target.parser_version)
    return due, purged, error
