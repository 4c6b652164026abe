"""Finds other replays of the same messages to the same target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql_over_tables
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import ReplayState, add_replay_event, read_replay_states
from commitlake.pipelines.replay.plan import LogRange, ReplayPlan
from commitlake.pipelines.replay.plan_part_rows import log_ranges_condition
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ENDED, ReplayEvent

_MAX_ENDED = 5
"""Number of ended replays that are examined, the newest first. Each costs a query."""


class OtherReplay(NamedTuple):
    """Other replay that sends, or has sent, some of the same messages.

    Attributes:
        state: state of the replay.
        messages: number of messages in common.
    """

    state: ReplayState
    messages: int

    @property
    def is_unfinished(self) -> bool:
        """True if the replay has not ended: it may still send, or may have sent messages that the ledger lacks."""
        return self.state.event not in ENDED


def find_other_replays(
    lake: Lake,
    plan: ReplayPlan,
    messages_table: DeltaTable,
    *,
    on_unreadable: Callable[[str, ReplayError], None] = lambda *_: None,
) -> list[OtherReplay]:
    """Return other replays of the same messages to the same target queues, oldest first.

    All replays that have not ended are examined, and the newest of the others. A replay that cannot be read, as
    one that another version wrote, is left out.

    Args:
        plan: the plan; its condition applies to `messages_table`.
        messages_table: the table `messages`, of the lake or copied.
        on_unreadable: called with the id of each replay that cannot be read.
    """
    # The lake may not exist yet: a replay of a store or of live topics makes it.
    states = {} if lake.find("replays") is None else read_replay_states(lake, on_error=on_unreadable)
    found: list[OtherReplay] = []
    ended = 0
    for name, state in sorted(states.items(), key=lambda item: item[1].plan.created_at, reverse=True):
        other = state.plan
        if name == plan.replay_id or state.event is ReplayEvent.WITHDRAWN or not _may_share_messages(plan, other):
            continue
        ended += state.event in ENDED
        if state.event in ENDED and ended > _MAX_ENDED:
            continue
        if count := _count_shared_messages(lake, plan, messages_table, state):
            found.append(OtherReplay(state, min(count, other.messages_to_send)))
    return found[::-1]


def check_no_unfinished_replay(other_replays: Collection[OtherReplay]) -> None:
    """Raise an error if an unfinished replay may be sending some of the same messages, or may have sent them.

    Raises:
        ReplayError: if there is such a replay.
    """
    for other in other_replays:
        if other.is_unfinished:
            name = other.state.plan.replay_id
            raise ReplayError(
                f"{other.messages:,} of these messages belong to the replay {name}, which has not finished "
                f"({other.state.event}): 'commitlake replay resume {name}' continues it, and --again sends them "
                "a second time",
                exit_code=ExitCode.REFUSED,
            )


def record_plan(
    lake: Lake,
    plan: ReplayPlan,
    messages_table: DeltaTable,
    accepted_replays: Collection[OtherReplay],
    selection: str | None = None,
) -> None:
    """Record a new plan; raise an error if another process has recorded one for the same messages meanwhile.

    If two are recorded at the same time, at least one sees the other and withdraws. One that has even ended since
    `accepted_replays` was found has sent messages that this plan was to send.

    Args:
        plan: the plan to record.
        messages_table: the table with which `accepted_replays` was found.
        accepted_replays: other replays that are accepted.
        selection: SQL that chose the messages from `messages_table`; by default that of the plan.

    Raises:
        ReplayError: if there is a new one; nothing is sent.
    """
    add_replay_event(lake, plan.replay_id, ReplayEvent.PLANNED, plan=plan)
    chosen = plan if selection is None else replace(plan, selection=selection)
    try:
        _check_no_new_replay(find_other_replays(lake, chosen, messages_table), accepted_replays)
    except ReplayError as error:
        add_replay_event(lake, plan.replay_id, ReplayEvent.WITHDRAWN, detail=str(error))
        raise


def _check_no_new_replay(found: Collection[OtherReplay], accepted_replays: Collection[OtherReplay]) -> None:
    """Raise an error if there is another replay of the same messages that the user has not accepted."""
    accepted = {other.state.plan.replay_id for other in accepted_replays}
    new = [other for other in found if other.state.plan.replay_id not in accepted]
    check_no_unfinished_replay(new)
    if new:
        raise ReplayError(
            f"while this replay was planned, the replay {new[0].state.plan.replay_id} sent {new[0].messages:,} of the "
            "same messages: nothing was sent. Run the command again, which shows what the other replay sent, and "
            "sends the messages a second time",
            exit_code=ExitCode.REFUSED,
        )


def _may_share_messages(plan: ReplayPlan, other_plan: ReplayPlan) -> bool:
    """Return whether two plans may send the same messages to the same brokers and topics."""
    queues = {(queue.topic, queue.broker) for queue in plan.target.queues}
    if not any((queue.topic, queue.broker) in queues for queue in other_plan.target.queues):
        return False
    if not split_addresses(plan.target.name_servers) & split_addresses(other_plan.target.name_servers):
        return False
    return any(True for _ in _shared_ranges(plan, other_plan))


def split_addresses(name_servers: str) -> set[str]:
    """Split a text of name servers into addresses."""
    return {address for part in name_servers.replace(",", ";").split(";") if (address := part.strip())}


def _shared_ranges(plan: ReplayPlan, other_plan: ReplayPlan) -> Iterator[LogRange]:
    """Yield, for each log, the physical offsets that are in the ranges of both plans."""
    mine, theirs = _log_extents(plan), _log_extents(other_plan)
    for broker in mine.keys() & theirs.keys():
        start = max(mine[broker].start, theirs[broker].start)
        end = min(mine[broker].end, theirs[broker].end)
        if start < end:
            yield LogRange(broker, start, end)


def _log_extents(plan: ReplayPlan) -> dict[str, LogRange]:
    found: dict[str, LogRange] = {}
    for part in plan.parts:
        for broker, start, end in part:
            known = found.get(broker, LogRange(broker, start, end))
            found[broker] = LogRange(broker, min(start, known.start), max(end, known.end))
    return found


def _count_shared_messages(lake: Lake, plan: ReplayPlan, messages_table: DeltaTable, other_state: ReplayState) -> int:
    """Count the messages that both plans send; of a plan whose copies were dropped, those that it has sent."""
    other = other_state.plan
    # If the archive has grown since the other replay was planned, it has messages beyond that plan's ranges.
    shared = log_ranges_condition(sorted(_shared_ranges(plan, other)))
    tables = {"messages": messages_table}
    if plan.selection and other.selection:
        sql = f"SELECT count(*) AS messages FROM messages WHERE ({plan.selection}) AND {shared} AND ({other.selection})"
    else:
        has_copies = other_state.copies_dropped_at is None
        names = [] if plan.selection and not has_copies else ["replay_rows"]
        names += [] if has_copies else ["replay_messages"]
        tables |= {name: lake.table(name) for name in names}
        mine, theirs = _table_and_condition(plan), _table_and_condition(other, has_copies=has_copies)
        sql = (
            f"SELECT count(*) AS messages FROM (SELECT broker, physical_offset FROM {mine} AND {shared}) AS mine "
            f"JOIN (SELECT broker AS log, physical_offset AS place FROM {theirs}) AS theirs "
            "ON mine.broker = theirs.log AND mine.physical_offset = theirs.place"
        )
    return int(run_sql_over_tables(tables, sql).read_all().column("messages")[0].as_py())


def _table_and_condition(plan: ReplayPlan, *, has_copies: bool = True) -> str:
    """Return the SQL text `table WHERE condition` that selects the messages of a plan.

    Args:
        has_copies: False if its rows of `replay_rows` were dropped: those that were sent are in `replay_messages`.
    """
    if plan.selection:
        return f"messages WHERE ({plan.selection})"
    of_replay = f"replay_id = {text_literal(plan.replay_id)}"
    return f"replay_rows WHERE {of_replay} AND is_changed" if has_copies else f"replay_messages WHERE {of_replay}"
