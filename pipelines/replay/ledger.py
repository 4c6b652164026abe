"""The tables `replays` and `replay_messages`: plans and events of replays, and outcomes of their messages.

Rows of a replay are added to `replay_messages` by compare-and-set on a Delta transaction number: that of the replay,
or, if several senders share the work, that of one sender. A process takes a replay over by raising the numbers of the
replay and of all its senders in one commit; from then on, no other process can add rows.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_utc_times
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows, commit_with_transaction
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.plan import ReplayPlan, plan_from_json, plan_to_json
from commitlake.pipelines.replay.sent_messages import Origin
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, int_in_range
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.replays import REPLAY_MESSAGES, REPLAYS, ReplayEvent, SendOutcome

_OTHER_HOST_SECONDS = 60
"""Time without writes after which a process on another host counts as ended."""

ROWS_LOST = "a repair of the lake has lost rows about this replay"

_MAX_SHOWN = 100
_TRY_SECONDS = 120
"""Time for which a commit is tried again while other senders of the replay commit first."""
TRY_AGAIN = "Nothing was sent: try again"
"""Advice if the commits of others were first before a replay was planned."""
_MAX_WAIT_SECONDS = 0.5
"""Longest random wait between two tries."""

_PLACE = ("broker", "physical_offset", "target_topic", "target_broker", "target_queue_id", "target_offset")


class Counts(NamedTuple):
    """Numbers of a replay's messages that were sent, and that could not be sent."""

    sent: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayState:
    """State of a replay, computed from its events in the table `replays`.

    Attributes:
        plan: plan of the replay.
        event: the newest event that changes its state.
        at: time of that event.
        owner: process that last began to send; None if none did.
        rate: the last requested limit, in messages per second; None if none was requested.
        speed: the last requested factor of the original pace; None if none was requested.
        wants_stop: True if a stop was requested since it last began to send.
        detail: detail of the newest event.
        last_at: time of the newest event of any kind.
        copies_dropped_at: time at which its rows of `replay_rows` were dropped; None if they were not.
        has_lost_rows: True if a repair of the lake has lost rows about it.
        is_verified: True if the target was read back since that event.
    """

    plan: ReplayPlan
    event: ReplayEvent
    at: datetime.datetime
    owner: str | None
    rate: float | None
    speed: float | None
    wants_stop: bool
    detail: str | None
    last_at: datetime.datetime
    copies_dropped_at: datetime.datetime | None = None
    has_lost_rows: bool = False
    is_verified: bool = False

    def plan_with_limits(
        self,
        rate: float | None = None,
        speed: float | None = None,
        lag_limit: tuple[str, int] | None = None,
    ) -> ReplayPlan:
        """Return the plan with the given limits; for None with that last requested, or else that of the plan."""
        rates, speeds = (rate, self.rate, self.plan.rate), (speed, self.speed, self.plan.speed)
        return replace(
            self.plan,
            rate=next(each for each in rates if each is not None),
            speed=next(each for each in speeds if each is not None),
            lag_limit=lag_limit or self.plan.lag_limit,
        )


_NOT_STATES = (
    ReplayEvent.THROTTLED,
    ReplayEvent.STOPPING,
    ReplayEvent.VERIFIED,
    ReplayEvent.COPIES_DROPPED,
    ReplayEvent.ROWS_LOST,
)


def add_replay_event(
    lake: Lake,
    replay_id: str,
    event: ReplayEvent,
    *,
    plan: ReplayPlan | None = None,
    rate: float | None = None,
    speed: float | None = None,
    counts: Counts | None = None,
    detail: str | None = None,
    sender_count: int = 0,
) -> None:
    """Add a row for an event of a replay, such as its start or end, to the table `replays`.

    Args:
        sender_count: number of tasks that share the work of this process; 0 if it sends itself.
    """
    row = {
        "replay_id": replay_id,
        "at": _event_time(lake, replay_id),
        "event": str(event),
        "owner": identify_this_process(sender_count),
        "plan": None if plan is None else plan_to_json(plan),
        "rate": rate,
        "sent": None if counts is None else counts.sent,
        "failed": None if counts is None else counts.failed,
        "detail": detail,
        "speed": speed,
    }
    rows = pa.Table.from_pylist([row], arrow_schema(REPLAYS))
    if plan is None:
        append_rows(lake, "replays", rows)
    else:
        _append_plan(lake, replay_id, rows)


def _append_plan(lake: Lake, replay_id: str, rows: pa.Table) -> None:
    """Add the row with the plan of a replay to `replays`.

    Raises:
        OtherProcessError: if the replay has a plan, as another process with the same id has just added it.
        ReplayError: if a plan with this id was added before, and a repair of the lake has lost it.
    """
    application = f"commitlake.replays/{replay_id}"
    file = write_plain_file(rows, lake, "replays", f"part-{secrets.token_hex(16)}.zstd.parquet")
    for _ in iterate_commit_attempts():
        if commit_with_transaction(lake, "replays", [file], application, (None, 1)):
            return
        if lake.table("replays").transaction_version(application) is not None:
            # The number is written with the row, and a repair of the lake keeps the number.
            if not any(row["plan"] for row in read_events(lake, replay_id)):
                raise ReplayError(
                    f"a repair of the lake has lost the plan of the replay {replay_id}: choose another name"
                )
            raise OtherProcessError(f"another process has just planned the replay {replay_id}, so this one has stopped")
    raise busy_error("replays", TRY_AGAIN)


def _current_time() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _event_time(lake: Lake, replay_id: str) -> datetime.datetime:
    """Return the time for a new event of a replay, later than all of its events so far even if clocks differ."""
    now = _current_time()
    table = lake.find("replays")
    if table is None:
        return now
    sql = f"SELECT max(at) AS last FROM replays WHERE replay_id = {text_literal(replay_id)}"
    last: datetime.datetime | None = run_sql(table, "replays", sql).read_all().column("last")[0].as_py()
    return now if last is None else max(now, last + datetime.timedelta(microseconds=1))


def read_replay_states(
    lake: Lake, replay_id: str | None = None, *, on_error: Callable[[str, ReplayError], None] | None = None
) -> dict[str, ReplayState]:
    """Return the state of each replay of a lake, oldest first.

    Args:
        replay_id: only this replay.
        on_error: called with the id of a replay whose rows cannot be read, which is left out. By default the error is
            raised.

    Raises:
        ReplayError: if the rows of a replay cannot be read.
    """
    return _states_of_events(read_events(lake, replay_id), on_error)


def _states_of_events(
    events: Sequence[dict[str, Any]], on_error: Callable[[str, ReplayError], None] | None = None
) -> dict[str, ReplayState]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in events:
        rows.setdefault(row["replay_id"], []).append(row)
    states = {}
    for name, its in rows.items():
        if any(row["plan"] for row in its):
            try:
                states[name] = _parse_state(name, its)
            except ReplayError as error:
                if on_error is None:
                    raise
                on_error(name, error)
    return states


def read_events(lake: Lake, replay_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of the table `replays`, of one replay or of all, oldest first."""
    try:
        table = lake.table("replays")
    except NoTableError:
        return []
    where = "" if replay_id is None else f" WHERE replay_id = {text_literal(replay_id)}"
    found = run_sql(table, "replays", f"SELECT * FROM replays{where} ORDER BY at").read_all()
    times = to_utc_times(found.column("at"))
    return [row | {"at": at} for row, at in zip(found.drop_columns(["at"]).to_pylist(), times, strict=True)]


def read_replay_state(lake: Lake, replay_id: str) -> ReplayState:
    """Return the state of one replay.

    Raises:
        ReplayError: if the lake has no such replay.
    """
    return to_replay_state(replay_id, read_events(lake, replay_id))


def to_replay_state(replay_id: str, events: Sequence[dict[str, Any]]) -> ReplayState:
    """Compute the state of a replay from its rows in the table `replays`.

    Raises:
        ReplayError: if there is no such replay.
        ReplayError: if the rows cannot be read.
    """
    states = _states_of_events(events)
    if replay_id not in states:
        raise ReplayError(f"the lake has no replay {replay_id!r}. 'commitlake replay list' shows all")
    return states[replay_id]


def _parse_state(replay_id: str, rows: list[dict[str, Any]]) -> ReplayState:
    plan = plan_from_json(next(row["plan"] for row in rows if row["plan"]))
    if plan.replay_id != replay_id:
        raise ReplayError(
            f"the table 'replays' is damaged: the row of the replay {replay_id!r} has the plan of {plan.replay_id!r}"
        )
    for row in rows:
        _check_event(replay_id, row)
    telling = [row for row in rows if row["event"] not in _NOT_STATES]
    if not telling:
        raise ReplayError(
            f"the table 'replays' is damaged: it has no row that says whether the replay {replay_id} is planned, "
            "running or finished. Plan a new replay"
        )
    started = [row for row in rows if row["event"] == ReplayEvent.STARTED]
    stops = [row for row in rows if row["event"] == ReplayEvent.STOPPING]
    return ReplayState(
        plan=plan,
        event=ReplayEvent(telling[-1]["event"]),
        at=telling[-1]["at"],
        owner=started[-1]["owner"] if started else None,
        rate=_last_number(rows, "rate"),
        speed=_last_number(rows, "speed"),
        # A request to stop that is older than the last start was meant for the run before.
        wants_stop=bool(stops) and (not started or stops[-1]["at"] >= started[-1]["at"]),
        detail=[row["detail"] for row in rows if row["event"] != ReplayEvent.COPIES_DROPPED][-1],
        last_at=rows[-1]["at"],
        copies_dropped_at=next((row["at"] for row in rows if row["event"] == ReplayEvent.COPIES_DROPPED), None),
        has_lost_rows=any(row["event"] == ReplayEvent.ROWS_LOST for row in rows),
        is_verified=any(row["event"] == ReplayEvent.VERIFIED for row in rows[rows.index(telling[-1]) :]),
    )


def _last_number(rows: list[dict[str, Any]], column_name: str) -> float | None:
    """Return the last number in a column of rows; None if all are null, as in rows of earlier versions."""
    found = [row[column_name] for row in rows if row.get(column_name) is not None]
    return found[-1] if found else None


def _check_event(replay_id: str, row: Mapping[str, Any]) -> None:
    """Raise an error if a row of `replays` has values that no job writes."""
    place = f"the replay {replay_id} in the table 'replays'"
    if row["event"] not in list(ReplayEvent):
        raise ReplayError(
            f"{place}: the field 'event': expected one of {', '.join(ReplayEvent)}, found {row['event']!r}"
        )
    if row["at"] is None:
        raise ReplayError(f"{place}: the field 'at' is missing: expected a time")
    for name in ("rate", "speed"):
        if row.get(name) is not None and not 0 <= row[name] < math.inf:
            raise ReplayError(f"{place}: the field {name}: expected a number of at least 0, found {row[name]}")


class SenderClaim(NamedTuple):
    """Permission to send one share of a replay, issued by the process that runs the replay.

    Attributes:
        number: number of the sender, from 0.
        run: transaction number of the replay since it was taken over.
        version: transaction number of the sender since then.
    """

    number: int
    run: int
    version: int


class Ledger:
    """Record of the outcomes of one replay's messages in the lake, for a process that sends them; thread-safe.

    Args:
        lake: The lake.
        replay_id: id of the replay.
    """

    def __init__(self, lake: Lake, replay_id: str) -> None:
        self._lake, self._id = lake, replay_id
        self._application = _application_id(replay_id)
        self._version: int | None = None
        self._lock = threading.Lock()

    def claim_replay(self, sender_count: int = 0) -> list[SenderClaim]:
        """Make this process the only one that can add outcomes of the replay, besides senders that it starts.

        Args:
            sender_count: number of senders that share the work; 0 if this process sends everything.

        Returns:
            One claim for each sender.

        Raises:
            OtherProcessError: if another process does so at the same time.
        """
        before = self._transaction_version(self._application)
        for _ in iterate_commit_attempts():
            known = self._sender_versions()
            # Also the numbers of further senders of earlier runs, whose tasks may still be running.
            following = [version + 1 for version in known] + [1] * (sender_count - len(known))
            beside = {self._sender_application_id(each): (number - 1, number) for each, number in enumerate(following)}
            if self._try_commit([], before, beside):
                run = (before or 0) + 1
                return [SenderClaim(number, run, version) for number, version in enumerate(following[:sender_count])]
            # A task of an earlier run may have raised its sender's number at the same time.
            if self._transaction_version(self._application) != before:
                raise self._taken_over_error()
        raise busy_error("replay_messages")

    def claim_sender(self, claim: SenderClaim) -> bool:
        """Make this process the only one that can add outcomes of a sender's share of the replay.

        Returns:
            True if no process has had this claim before.

        Raises:
            OtherProcessError: if another process does so at the same time, or has taken the replay over.
        """
        table = self._lake.find("replay_messages")
        sender = self._sender_application_id(claim.number)
        version = None if table is None else table.transaction_version(sender)
        if table is None or table.transaction_version(self._application) != claim.run:
            raise self._taken_over_error()
        # A process that takes the replay over now raises the sender's number, too, so that this claim fails.
        self._application = sender
        self._commit_with_retries([], version)
        return version == claim.version

    def count_senders(self) -> int:
        """Return the largest number of tasks that have sent in parallel; 0 if one process has always sent alone."""
        return len(self._sender_versions())

    def was_claimed(self) -> bool:
        """Return whether any process has ever claimed the right to send the replay."""
        return self._transaction_version(_application_id(self._id)) is not None

    @property
    def is_first_claim(self) -> bool:
        """True if no process has claimed this replay, or share, before this one, so that nothing can be sent yet."""
        return self._version == 1

    def check_is_owner(self) -> None:
        """Raise an error if another process has taken over the replay, or the share, from this one.

        Raises:
            OtherProcessError: if one has.
        """
        # Under the lock, because another thread of this process may just be raising the number.
        with self._lock:
            if self._transaction_version(self._application) != self._version:
                raise self._taken_over_error()

    def add_outcomes(self, rows: pa.Table) -> None:
        """Add rows with the outcomes of messages to the table `replay_messages`.

        Args:
            rows: rows of `replay_messages`.

        Raises:
            OtherProcessError: if another process has taken the replay over.
        """
        rows = rows.cast(arrow_schema(REPLAY_MESSAGES))
        name = f"part-{secrets.token_hex(16)}.zstd.parquet"
        # Written once: each attempt commits the same file.
        file = write_plain_file(rows, self._lake, "replay_messages", name)
        self._commit_with_retries([file], self._version)

    def _commit_with_retries(self, files: list[Any], version: int | None) -> None:
        for _ in iterate_commit_attempts():
            if self._try_commit(files, version):
                return
            if self._transaction_version(self._application) != version:
                raise self._taken_over_error()
        raise busy_error("replay_messages")

    def is_superseded(self, claim: SenderClaim) -> bool:
        """Return whether another process has taken over the replay, or the share that this one has claimed."""
        table = self._lake.find("replay_messages")
        replay, sender = _application_id(self._id), self._sender_application_id(claim.number)
        if table is None or table.transaction_version(replay) != claim.run:
            return True
        known = self._version if self._application == sender else claim.version
        return table.transaction_version(sender) != known

    def _try_commit(
        self, files: list[Any], version: int | None, other_transactions: Mapping[str, tuple[int, int]] | None = None
    ) -> bool:
        """Commit files under the next transaction number; return False if another process took that number first.

        It is also False if too many commits of others were first.
        """
        following = (version or 0) + 1
        with self._lock:
            is_done = commit_with_transaction(
                self._lake,
                "replay_messages",
                files,
                self._application,
                (version, following),
                other_transactions=other_transactions,
            )
            if is_done:
                self._version = following
        return is_done

    def _taken_over_error(self) -> OtherProcessError:
        return OtherProcessError(f"another process has taken over the replay {self._id}, so this one has stopped")

    def _transaction_version(self, application_id: str) -> int | None:
        table = self._lake.find("replay_messages")
        return None if table is None else table.transaction_version(application_id)

    def _sender_application_id(self, sender_number: int) -> str:
        return f"{_application_id(self._id)}/{sender_number}"

    def _sender_versions(self) -> list[int]:
        """Return the transaction number of each sender of the replay in the Delta log."""
        table = self._lake.find("replay_messages")
        found: list[int] = []
        while table is not None:
            version = table.transaction_version(self._sender_application_id(len(found)))
            if version is None:
                break
            found.append(version)
        return found

    def _query_rows(self, columns: str, condition: str = "true", sql_suffix: str = "") -> pa.Table | None:
        table = self._lake.find("replay_messages")
        if table is None:
            return None
        sql = f"SELECT {columns} FROM t WHERE replay_id = {text_literal(self._id)} AND {condition} {sql_suffix}"
        return run_sql(table, "t", sql).read_all()

    def count_sent_and_failed(self) -> Counts:
        """Return the numbers of messages that were sent, and that could not be sent."""
        sent = f"count(*) FILTER (WHERE outcome IN ('{SendOutcome.SENT}', '{SendOutcome.FOUND}')) AS sent"
        rows = self._query_rows(f"{sent}, count(*) AS known")
        if rows is None:
            return Counts(0, 0)
        (row,) = rows.to_pylist()
        return Counts(row["sent"], row["known"] - row["sent"])

    def count_by_outcome(self) -> list[dict[str, Any]]:
        """Return the number of messages and their first and last offset, by target queue and outcome."""
        names = "target_topic, target_broker, target_queue_id, outcome"
        figures = "count(*) AS messages, min(target_offset) AS first_offset, max(target_offset) AS last_offset"
        rows = self._query_rows(f"{names}, {figures}", sql_suffix=f"GROUP BY {names} ORDER BY {names}")
        return [] if rows is None else rows.to_pylist()

    def count_by_part(self) -> dict[int, int]:
        """Return the number of messages with a recorded outcome, by part of the plan."""
        rows = self._query_rows("part, count(*) AS known", sql_suffix="GROUP BY part")
        return {} if rows is None else {row["part"]: row["known"] for row in rows.to_pylist()}

    def last_part_by_queue(self) -> dict[MessageQueue, int]:
        """Return, for each target queue, the number of the plan's last part with a recorded outcome."""
        rows = self._query_rows(
            "target_topic, target_broker, target_queue_id, max(part) AS part", sql_suffix="GROUP BY 1, 2, 3"
        )
        if rows is None:
            return {}
        return {MessageQueue(*list(row.values())[:3]): row["part"] for row in rows.to_pylist()}

    def origins_of_part(self, part_number: int) -> set[Origin]:
        """Return the original places of a part's messages whose outcome is recorded."""
        rows = self._query_rows("broker, physical_offset", f"part = {part_number}")
        return set() if rows is None else {Origin(*row.values()) for row in rows.to_pylist()}

    def sent_offsets_of_part(self, part_number: int) -> pa.Table:
        """Return the target queues and offsets at which a part's messages were stored.

        Returns:
            `broker`, `physical_offset`, `target_topic`, `target_broker`, `target_queue_id` and `target_offset`.
        """
        rows = self._query_rows(", ".join(_PLACE), f"part = {part_number} AND target_offset IS NOT NULL")
        schema = arrow_schema(REPLAY_MESSAGES.select_columns(_PLACE))
        return schema.empty_table() if rows is None else rows.cast(schema)

    def end_offsets(self) -> Mapping[MessageQueue, int]:
        """Return, for each target queue, the offset after the last message recorded as stored in it."""
        columns = "target_topic, target_broker, target_queue_id, max(target_offset) + 1 AS place"
        rows = self._query_rows(columns, "target_offset IS NOT NULL", "GROUP BY 1, 2, 3")
        if rows is None:
            return {}
        return {MessageQueue(*list(row.values())[:3]): row["place"] for row in rows.to_pylist()}

    def last_outcome_time(self) -> datetime.datetime | None:
        """Return when the last outcome was recorded; None if there is none."""
        rows = self._query_rows("max(sent_at) AS at")
        if rows is None:
            return None
        found: datetime.datetime | None = pc.max(rows.column("at")).as_py()
        return found


def check_has_copies(state: ReplayState) -> None:
    """Raise an error if `maintain` has dropped the copied messages that a replay would send.

    Raises:
        ReplayError: if they were.
    """
    if state.copies_dropped_at is not None:
        raise ReplayError(
            f"'commitlake maintain' dropped the messages that the replay {state.plan.replay_id} sends from the lake on "
            f"{state.copies_dropped_at:%Y-%m-%d}, so there is nothing to send, or to compare the target with"
        )


def check_can_continue(lake: Lake, state: ReplayState) -> None:
    """Raise an error if the messages of a replay that has not ended cannot be sent now.

    Raises:
        ReplayError: if a repair of the lake has lost rows that may have said that the replay has begun, or if the
            copies of its messages were dropped.
        OtherProcessError: if a process is sending it, or may be.
    """
    if state.has_lost_rows and state.event is ReplayEvent.PLANNED:
        raise ReplayError(
            f"the replay {state.plan.replay_id} cannot be resumed: {ROWS_LOST}, so it is not known whether it has "
            "begun, or was withdrawn",
            hint="plan a new replay; --again sends messages that this one may have sent",
        )
    check_has_copies(state)
    check_is_not_running(lake, state)


def check_is_not_running(lake: Lake, state: ReplayState) -> None:
    """Raise an error if a process is sending a replay now, or may be.

    Raises:
        OtherProcessError: if a process is sending it, or may be.
    """
    if state.event is not ReplayEvent.STARTED or state.owner is None:
        return
    replay_id = state.plan.replay_id
    owner = _parse_owner(replay_id, state.owner)
    if owner.host == socket.gethostname():
        if _process_start_time(owner.pid) == owner.started:
            raise OtherProcessError(
                f"process {owner.pid} of this host is sending the replay {replay_id}. Stop it with "
                f"'commitlake replay stop {replay_id}'"
            )
        return
    seen = max(state.at, Ledger(lake, replay_id).last_outcome_time() or state.at)
    left = _OTHER_HOST_SECONDS - (datetime.datetime.now(datetime.UTC) - seen).total_seconds()
    if left > 0:
        raise OtherProcessError(
            f"a process of the host {owner.host} may be sending the replay {replay_id}: it last wrote "
            f"{_OTHER_HOST_SECONDS - left:.0f} s ago. Try again in {left:.0f} s, or stop it with "
            f"'commitlake replay stop {replay_id}'"
        )


def is_sent_by_tasks(state: ReplayState) -> bool:
    """Return whether the process that last started to send a replay uses parallel tasks."""
    return state.owner is not None and _parse_owner(state.plan.replay_id, state.owner).senders > 0


class _OwnerProcess(NamedTuple):
    host: str
    pid: int
    started: str | None
    senders: int = 0


def _parse_owner(replay_id: str, text: str) -> _OwnerProcess:
    """Parse the text in `replays` that identifies the process that owns a replay."""
    try:
        fields = json.loads(text)
        owner = _OwnerProcess(fields["host"], fields["pid"], fields["started"], fields.get("senders", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        owner = _OwnerProcess("", 0, None)
    is_text = isinstance(owner.host, str) and isinstance(owner.started, str | None)
    if not (is_text and owner.host and int_in_range(owner.pid, 1, INT32_MAX)) or (
        int_in_range(owner.senders, 0, INT32_MAX) is None
    ):
        raise ReplayError(
            f"the replay {replay_id} in the table 'replays': the field 'owner': expected host, pid and start of a "
            f"process, found {text[:_MAX_SHOWN]!r}"
        )
    return owner


def _application_id(replay_id: str) -> str:
    return f"commitlake.replay/{replay_id}"


def iterate_commit_attempts() -> Iterator[None]:
    """Yield once for each attempt to commit, after a random wait, until a time limit."""
    end = time.monotonic() + _TRY_SECONDS
    yield
    while time.monotonic() < end:
        time.sleep(random.uniform(0, _MAX_WAIT_SECONDS))  # noqa: S311 (no secret)
        yield


def busy_error(
    table: str, advice: str = "Resume the replay, with fewer tasks if it has more than a hundred"
) -> ReplayError:
    """Return the error for a commit that other processes have prevented until the time limit.

    Args:
        table: name of the table.
        advice: what the user can do about it.
    """
    return ReplayError(
        f"other processes added rows to the table {table!r} first for {_TRY_SECONDS} s. {advice}",
        exit_code=ExitCode.FAILED,
        is_transient=True,
    )


def identify_this_process(sender_count: int = 0) -> str:
    """Return a text that identifies this process among all hosts, even if its process id is used again.

    Args:
        sender_count: number of tasks that share the work of this process, which the text also says.
    """
    pid = os.getpid()
    known = {"host": socket.gethostname(), "pid": pid, "started": _process_start_time(pid)}
    return json.dumps(known | ({"senders": sender_count} if sender_count else {}))


def _process_start_time(pid: int) -> str | None:
    """Return the start time of a process, in ticks of the kernel; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
