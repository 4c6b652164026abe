"""Other replays of the same messages to the same place: what they have sent, and what they may still send."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from deltalake import DeltaTable

from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import open_table, run_sql, run_sql_over
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.replay.errors import OtherReplayError, ReplayError
from commitlake.pipelines.replay.ledger import ReplayState, add_event, read_states
from commitlake.pipelines.replay.parts import part_condition
from commitlake.pipelines.replay.plan import LogRange, ReplayPlan
from commitlake.schemas.tables.replays import ReplayEvent

_ENDED = frozenset({ReplayEvent.FINISHED, ReplayEvent.UNDONE, ReplayEvent.WITHDRAWN})
_MAX_ENDED = 5
"""How many of those that have ended are looked at, the newest ones: each costs a query."""


class OtherReplay(NamedTuple):
    """A replay that has some of the same messages.

    Attributes:
        state: of it.
    """

    state: ReplayState
    messages: int

    @property
    def is_unfinished(self) -> bool:
        """Whether it may have sent more than the ledger tells, or may still send."""
        return self.state.event not in _ENDED


def find_others(lake: LakePaths, plan: ReplayPlan, table: DeltaTable) -> list[OtherReplay]:
    """Return the other replays of a plan's messages to the queues of its target, oldest first.

    All that have not ended are looked at, and the newest ones of the others.
    A replay that cannot be read is left out: 'replay list' names it.

    Args:
        lake: the lake.
        plan: its condition is on `table`.
        table: `messages`, of the lake or copied.

    Raises:
        QueryError: if a table cannot be read.
    """
    states = read_states(lake, on_error=lambda *_: None)
    found: list[OtherReplay] = []
    ended = 0
    for name, state in sorted(states.items(), key=lambda item: item[1].plan.created_at, reverse=True):
        other = state.plan
        if name == plan.replay_id or state.event is ReplayEvent.WITHDRAWN or not _may_share(plan, other):
            continue
        ended += state.event in _ENDED
        if state.event in _ENDED and ended > _MAX_ENDED:
            continue
        if count := _count_shared(lake, plan, table, other):
            found.append(OtherReplay(state, min(count, other.wanted)))
    return found[::-1]


def check_unfinished(others: Collection[OtherReplay]) -> None:
    """Refuse messages that another replay may be sending, or may have sent.

    Raises:
        OtherReplayError: naming it.
    """
    for other in others:
        if other.is_unfinished:
            name = other.state.plan.replay_id
            raise OtherReplayError(
                f"{other.messages:,} of these messages are of the replay {name}, which has not finished "
                f"({other.state.event}): 'commitlake replay resume {name}' goes on with it, and --again sends them "
                "by another replay, too"
            )


def announce(lake: LakePaths, plan: ReplayPlan, table: DeltaTable, known: Collection[OtherReplay]) -> None:
    """Write a plan down, unless another process has written one for the same messages meanwhile.

    Of two that are written at the same time, at least one sees the other, and withdraws.

    Args:
        lake: the lake.
        plan: what is going to be sent.
        table: from which `known` was found.
        known: other replays that do not count.

    Raises:
        OtherReplayError: if there is a new one; nothing is sent.
        QueryError: if a table cannot be read.
    """
    add_event(lake, plan.replay_id, ReplayEvent.PLANNED, plan=plan)
    names = {other.state.plan.replay_id for other in known}
    try:
        check_unfinished([other for other in find_others(lake, plan, table) if other.state.plan.replay_id not in names])
    except ReplayError as error:
        add_event(lake, plan.replay_id, ReplayEvent.WITHDRAWN, detail=str(error))
        raise


def _may_share(plan: ReplayPlan, other: ReplayPlan) -> bool:
    """Return whether two plans have a queue of the target, and a stretch of a log, in common."""
    queues = {(queue.topic, queue.broker) for queue in plan.target.queues}
    if not any((queue.topic, queue.broker) in queues for queue in other.target.queues):
        return False
    if not _addresses(plan) & _addresses(other):
        return False
    return any(True for _ in _shared_ranges(plan, other))


def _addresses(plan: ReplayPlan) -> set[str]:
    return set(plan.target.name_servers.replace(",", ";").split(";"))


def _shared_ranges(plan: ReplayPlan, other: ReplayPlan) -> Iterator[LogRange]:
    """Yield what two plans have in common of each log, from its first to its last place."""
    mine, theirs = _extents(plan), _extents(other)
    for broker in mine.keys() & theirs.keys():
        start = max(mine[broker].start, theirs[broker].start)
        end = min(mine[broker].end, theirs[broker].end)
        if start < end:
            yield LogRange(broker, start, end)


def _extents(plan: ReplayPlan) -> dict[str, LogRange]:
    found: dict[str, LogRange] = {}
    for part in plan.parts:
        for broker, start, end in part:
            known = found.get(broker, LogRange(broker, start, end))
            found[broker] = LogRange(broker, min(start, known.start), max(end, known.end))
    return found


def _count_shared(lake: LakePaths, plan: ReplayPlan, table: DeltaTable, other: ReplayPlan) -> int:
    """Return how many messages of a plan another one has."""
    # An archive that has grown since the other one was planned has messages beyond its stretches: they are not in it.
    shared = part_condition(sorted(_shared_ranges(plan, other)))
    mine = f"({plan.selection}) AND {shared}"
    if other.selection:
        sql = f"SELECT count(*) AS messages FROM messages WHERE {mine} AND ({other.selection})"
        return int(run_sql(table, "messages", sql).read_all().column("messages")[0].as_py())
    sql = (
        f"SELECT count(*) AS messages FROM (SELECT broker, physical_offset FROM messages WHERE {mine}) AS mine "
        "JOIN (SELECT broker AS log, physical_offset AS place FROM replay_rows "
        f"WHERE replay_id = {text_literal(other.replay_id)} AND is_changed) AS theirs "
        "ON mine.broker = theirs.log AND mine.physical_offset = theirs.place"
    )
    tables = {"messages": table, "replay_rows": open_table(lake, "replay_rows")}
    return int(run_sql_over(tables, sql).read_all().column("messages")[0].as_py())
