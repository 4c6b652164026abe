"""Outcome of dead letters that were sent again: waiting, consumed, or dead again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.process import call_on_first_signal
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.dlq.arguments import DlqOptions
from commitlake.jobs.report.rows_output import Row, write_json_document, write_table, write_varying_rows
from commitlake.pipelines.replay.groups.outcomes import (
    CopyState,
    GroupFollower,
    GroupOutcomes,
    read_replay_rows,
    rows_by_dead_letter_group,
)
from commitlake.pipelines.replay.ledger import read_replay_state
from commitlake.pipelines.replay.plan import ReplayPlan
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column

PROG = "commitlake dlq"
_SAMPLES = 3
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 1.0, 10.0
_LINE_SECONDS = 10.0
_COLUMNS = ["group", "outcome", "messages", "retried"]
_SAMPLE_COLUMNS = [
    Column("group", 2),
    Column("outcome"),
    Column("msg_id", is_whole=True),
    Column("target", 1),
    Column("detail", 3),
]


def print_outcome(arguments: DlqOptions, lake: Lake) -> ExitCode:
    """Print whether each message that a redrive has sent was consumed, or what else has happened to it so far."""
    plan = read_replay_state(lake, arguments.replay_id).plan
    return print_replay_outcome(arguments, lake, plan)


def print_replay_outcome(arguments: DlqOptions, lake: Lake, plan: ReplayPlan) -> ExitCode:
    """Print what became of a replay's messages: once, or with `--follow` until no message is waiting any more.

    Raises:
        JobError: if the replay has sent no dead letter.
        RocketMQError: if the target does not answer.
    """
    rows = read_replay_rows(lake, plan.replay_id)
    groups = rows_by_dead_letter_group(rows)
    if not groups:
        raise JobError(
            f"the replay {plan.replay_id} has sent no dead letters so far", "'commitlake replay show' shows its state"
        )
    with open_target_client(arguments.namesrv or plan.target.name_servers) as client:
        followers = [GroupFollower(client, plan, group, sent) for group, sent in groups.items()]
        is_stopped = False
        if arguments.follow:
            found, is_stopped = _wait_for_outcomes(arguments, followers)
        else:
            found = [one.read_outcomes() for one in followers]
    unknown = plan.messages_to_send - rows.num_rows
    samples = _SAMPLES if arguments.samples is None else arguments.samples
    if arguments.format == "json":
        rows_by_group = _group_json_objects(found, samples)
        write_json_document({"replay_id": plan.replay_id, "not_sent_yet": unknown, "groups": rows_by_group})
    elif arguments.format in {"jsonl", "csv"}:
        write_varying_rows(arguments.format, _group_json_objects(found, samples))
    else:
        _print_tables(found, samples)
    for caution in dict.fromkeys(caution for one in found for caution in one.cautions):
        print_warning(PROG, caution)
    if unknown:
        print_warning(
            PROG,
            f"{format_count(unknown, 'message of the replay is', 'messages of the replay are')} not sent yet: "
            f"'commitlake replay resume {plan.replay_id}'",
        )
    return ExitCode.INTERRUPTED if is_stopped else _exit_code(found, unknown)


def _wait_for_outcomes(arguments: DlqOptions, followers: Sequence[GroupFollower]) -> tuple[list[GroupOutcomes], bool]:
    """Read outcomes until no message is waiting, time is up, or a signal arrives; return whether it was a signal."""
    started = time.monotonic()
    deadline = started + arguments.follow_for.total_seconds() if arguments.follow_for is not None else None
    wait, printed_at = _FIRST_WAIT_SECONDS, started
    is_stopped = False

    def stop_waiting() -> None:
        nonlocal is_stopped
        is_stopped = True

    with call_on_first_signal(stop_waiting):
        while True:
            found = [follower.read_outcomes() for follower in followers]
            now = time.monotonic()
            waiting = sum(one.count(CopyState.WAITING) for one in found)
            if not waiting or is_stopped or (deadline is not None and now >= deadline):
                return found, bool(waiting) and is_stopped
            if not arguments.quiet and now - printed_at >= _LINE_SECONDS:
                printed_at = now
                print_line(
                    f"{waiting:,} of {format_count(sum(one.rows.num_rows for one in found), 'message')} are waiting, "
                    f"{now - started:.0f} s"
                )
            until = min(now + wait, deadline) if deadline is not None else now + wait
            while not is_stopped and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.2))
            wait = min(1.5 * wait, _MAX_WAIT_SECONDS)


def _print_tables(group_outcomes: Sequence[GroupOutcomes], max_samples: int) -> None:
    write_table(_state_count_rows(group_outcomes), _COLUMNS, sys.stdout)
    shown = [row for one in group_outcomes for row in _sample_message_rows(one, max_samples)]
    if shown:
        print()
        write_table(shown, _SAMPLE_COLUMNS, sys.stdout)


def _state_count_rows(group_outcomes: Sequence[GroupOutcomes]) -> Iterator[Row]:
    for one in group_outcomes:
        for state in CopyState:
            if messages := one.count(state):
                retried = sum(one.states[row] == state for row in one.retries)
                yield {"group": one.group, "outcome": state.text, "messages": messages, "retried": retried}


def _sample_message_rows(outcomes: GroupOutcomes, max_samples: int) -> Iterator[Row]:
    """Yield rows for the first messages in each state except "consumed"."""
    columns = {
        name: outcomes.rows.column(name) for name in ("msg_id", "target_topic", "target_queue_id", "target_offset")
    }
    for state in CopyState:
        if state is CopyState.CONSUMED:
            continue
        for row in np.flatnonzero(outcomes.states == state)[:max_samples].tolist():
            topic, queue, offset = (columns[name][row].as_py() for name in list(columns)[1:])
            yield {
                "group": outcomes.group,
                "outcome": state.text,
                "msg_id": columns["msg_id"][row].as_py(),
                "target": "" if offset is None else f"{topic} {queue} {offset}",
                "detail": outcomes.describe_state(row),
            }


def _group_json_objects(group_outcomes: Sequence[GroupOutcomes], max_samples: int) -> list[dict[str, Any]]:
    return [
        {
            "group": one.group,
            "messages": one.rows.num_rows,
            **{state.name.lower(): one.count(state) for state in CopyState},
            "retried": len(one.retries),
            "cautions": list(one.cautions),
            "samples": list(_sample_message_rows(one, max_samples)),
        }
        for one in group_outcomes
    ]


def _exit_code(group_outcomes: Sequence[GroupOutcomes], unknown_count: int) -> ExitCode:
    if any(
        one.count(state) for one in group_outcomes for state in (CopyState.DEAD, CopyState.LOST, CopyState.NOT_SENT)
    ):
        return ExitCode.DAMAGE
    is_open = unknown_count or any(one.count(CopyState.WAITING) for one in group_outcomes)
    return ExitCode.FAILED if is_open else ExitCode.OK
