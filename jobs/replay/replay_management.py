"""The actions `list`, `show`, `stop`, `throttle` and `verify` of `replay`; each replay ends with the last one, too."""

from __future__ import annotations

import time

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Puller
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.replay.arguments import ReplayOptions, SendingArguments
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import (
    Ledger,
    ReplayState,
    add_replay_event,
    check_has_copies,
    is_sent_by_tasks,
    read_events,
    read_replay_state,
    read_replay_states,
    to_replay_state,
)
from commitlake.pipelines.replay.planned_messages import PlannedMessages, open_planned_messages
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.verifying import ReplayDifference, verify_replay
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.replays import ReplayEvent

PROG = "commitlake replay"
_COLUMNS = (
    Column("replay_id", is_whole=True), Column("state"), Column("since", 2), Column("messages"), Column("sent"),
    Column("failed", 1),
    Column("target", 3), Column("choice", 5), Column("detail", 4),
)  # fmt: skip
_EVENT_COLUMNS = [
    Column("at"), Column("event"), Column("owner", 5), Column("rate", 3), Column("speed", 4), Column("sent"),
    Column("failed", 1), Column("detail", 2),
]  # fmt: skip
_LANDING_COLUMNS = [
    "target_topic", "target_broker", "target_queue_id", "outcome", "messages", "first_offset", "last_offset",
]  # fmt: skip


def list_replays(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Print all replays, the newest last, and a warning for each replay whose rows cannot be read."""
    lake.table("messages")  # raises an error if this is not a lake
    unreadable: list[str] = []

    def print_unreadable_replay(replay_id: str, error: ReplayError) -> None:
        unreadable.append(replay_id)
        print_warning(PROG, f"replay {replay_id}: {error}")

    rows = [_replay_row(lake, state) for state in read_replay_states(lake, on_error=print_unreadable_replay).values()]
    write_rows(arguments.output, rows, _COLUMNS)
    if not rows and not unreadable and not arguments.quiet:
        print_line("the lake has no replays")
    return ExitCode.DAMAGE if unreadable else ExitCode.OK


def show_replay(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Show one replay, its events, and the queues in which its messages landed."""
    rows = read_events(lake, arguments.replay_id)
    state = to_replay_state(arguments.replay_id, rows)
    events = [_event_row(row) for row in rows]
    landings = Ledger(lake, arguments.replay_id).count_by_outcome()
    if arguments.output == "table":
        write_rows("table", [_replay_row(lake, state)], _COLUMNS)
        for shown, columns in ((events, _EVENT_COLUMNS), (landings, _LANDING_COLUMNS)):
            if shown:
                print()
                write_rows("table", shown, columns)
    else:
        row = _replay_row(lake, state) | {"events": events, "queues": landings}
        write_rows(arguments.output, [row], [*_COLUMNS, "events", "queues"])
    return ExitCode.OK


def _event_row(row: Row) -> Row:
    return {name: time_text(row["at"]) if name == "at" else row.get(name) for name in _EVENT_COLUMNS}


def _replay_row(lake: Lake, state: ReplayState) -> Row:
    plan = state.plan
    counts = Ledger(lake, plan.replay_id).count_sent_and_failed()
    return {
        "replay_id": plan.replay_id,
        "state": str(state.event),
        "since": time_text(state.at),
        "messages": plan.messages_to_send,
        "sent": counts.sent,
        "failed": counts.failed,
        "target": plan.target.name_servers + (f" {plan.target.topic}" if plan.target.topic else ""),
        "choice": plan.command,
        "detail": state.detail,
    }


def request_stop(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Ask the process that sends a replay to stop."""
    _check_is_running(read_replay_state(lake, arguments.replay_id))
    add_replay_event(lake, arguments.replay_id, ReplayEvent.STOPPING)
    if not arguments.quiet:
        print_line(
            f"the sending process stops within a few seconds; 'commitlake replay resume {arguments.replay_id}' "
            "continues the replay"
        )
    return ExitCode.OK


def request_rate_change(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Ask the process that sends a replay to change its rate, its speed, or both."""
    rate, speed = arguments.rate, arguments.speed
    state = read_replay_state(lake, arguments.replay_id)
    _check_is_running(state)
    if speed and is_sent_by_tasks(state):
        raise JobError(
            "--speed is refused, because the replay is sent by tasks on Spark, which cannot keep to the pace at which "
            "the messages were stored",
            "give --rate, or stop the replay, and resume it without --spark",
        )
    add_replay_event(lake, arguments.replay_id, ReplayEvent.THROTTLED, rate=rate, speed=speed)
    if not arguments.quiet:
        changes = []
        if rate is not None:
            changes.append(f"changes to {rate:g} messages/s" if rate else "no longer limits the rate")
        if speed is not None:
            pace = "the pace at which the messages were stored"
            changes.append(f"keeps to {speed:g} times {pace}" if speed else f"no longer keeps to {pace}")
        print_line(f"the sending process {' and '.join(changes)} within a few seconds")
    return ExitCode.OK


def _check_is_running(state: ReplayState) -> None:
    if state.event is not ReplayEvent.STARTED:
        raise JobError(f"no process is sending the replay {state.plan.replay_id}: its state is {state.event}")


def verify_replay_by_id(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Compare the messages that a replay sent with the lake."""
    state = read_replay_state(lake, arguments.replay_id)
    check_has_copies(state)
    plan = state.plan
    messages = open_planned_messages(lake, plan, open_packs(lake))
    with open_target_client(arguments.namesrv or plan.target.name_servers) as client:
        return verify_sent_messages(arguments, lake, messages, client.puller)


def verify_sent_messages(
    arguments: SendingArguments, lake: Lake, messages: PlannedMessages, puller: Puller
) -> ExitCode:
    """Compare the messages that a replay sent with the lake, print the differences, and store the result.

    Args:
        messages: the messages of the replay.
        puller: reader of the target.

    Returns:
        DAMAGE if a message differs from the sent one.
    """
    plan = messages.plan
    began = time.monotonic()
    with counted_progress("verifying", plan.messages_to_send, "messages", quiet=arguments.quiet) as advance:
        found = verify_replay(lake, messages, puller, advance)
    if found.problems:
        write_rows(
            arguments.output, [difference._asdict() for difference in found.examples], list(ReplayDifference._fields)
        )
    if not arguments.quiet or found.problems:
        print_line(f"replay {plan.replay_id}: {found.text} (reading back took {time.monotonic() - began:,.1f} s)")
    return ExitCode.DAMAGE if found.problems else ExitCode.OK
