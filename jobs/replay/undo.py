"""`replay undo`: print or set the offsets with which groups skip the messages that a replay sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.jobs.arguments.similar_names import known_names_hint, print_warning, suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.offsets.apply import NOTHING, check_connected_clients, report_set_offsets
from commitlake.jobs.offsets.compute_offsets import offset_client
from commitlake.jobs.replay.arguments import ReplayOptions
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.pipelines.offsets.broker_offset_update import set_offsets
from commitlake.pipelines.offsets.live_queues import OffsetClient
from commitlake.pipelines.offsets.offset_sources import open_lake_sources
from commitlake.pipelines.replay.groups.undo_offsets import GroupStep, find_consumer_groups, plan_group_steps
from commitlake.pipelines.replay.ledger import ReplayState, add_replay_event, check_is_not_running, read_replay_state
from commitlake.pipelines.replay.sent_messages import RunsByQueue, add_unrecorded_runs, read_sent_runs
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.replays import ReplayEvent

PROG = "commitlake replay"
MAX_GROUPS = 5000
"""Largest number of groups of a topic. For each, the broker is asked for the offset in every queue."""
_COLUMNS = [
    "group", "topic", "broker", "queue_id", "sent", "consumed", "offset", "set_to", "steps_over", "skips", "left",
    "others", "note",
]  # fmt: skip


def undo_replay(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Print the offsets with which groups skip the messages that a replay sent; with --apply, set them.

    Raises:
        JobError: A group is unknown or has clients, or the answer is no.
        ReplayError: The replay is unknown, or a process is sending it.
        RocketMQError: The target does not answer.
    """
    state = read_replay_state(lake, arguments.replay_id)
    check_is_not_running(lake, state)
    with offset_client(arguments.namesrv or state.plan.target.name_servers) as client:
        runs = _read_sent_runs(lake, state, client)
        if not runs:
            print_line(f"the replay {arguments.replay_id} has sent nothing: there is nothing to skip")
            return ExitCode.OK
        sources = open_lake_sources(lake)
        known = find_consumer_groups(client, runs, sources)
        groups = _filter_groups(arguments.group, known)
        _check_group_count(groups)
        steps = list(
            plan_group_steps(
                client, arguments.replay_id, runs, groups, sources, skips_other_messages=arguments.skip_others
            )
        )
        write_rows(arguments.output, (_group_step_row(step) for step in steps), _COLUMNS)
        _print_step_summary(arguments, steps, groups)
        is_done = all(not step.problem for step in steps)
        if arguments.apply:
            is_done = _set_offsets(arguments, lake, steps, client) and is_done
    has_left = any(step.step is not None and step.step.left for step in steps)
    return ExitCode.OK if is_done and not has_left else ExitCode.DAMAGE


def _check_group_count(groups_by_topic: Mapping[str, Collection[str]]) -> None:
    """Raise an error for too many groups, because requests for all their offsets would take very long."""
    count = max((len(names) for names in groups_by_topic.values()), default=0)
    if count > MAX_GROUPS:
        raise JobError(
            f"{count:,} groups consume a topic of the target, expected at most {MAX_GROUPS:,}",
            "name those that are to skip messages with --group",
        )


def _read_sent_runs(lake: Lake, state: ReplayState, client: OffsetClient) -> RunsByQueue:
    runs = read_sent_runs(lake, state.plan.replay_id)
    return runs if state.event is ReplayEvent.FINISHED else add_unrecorded_runs(runs, state.plan, client.puller)


def _filter_groups(
    requested_groups: Sequence[str], groups_by_topic: Mapping[str, Collection[str]]
) -> dict[str, Collection[str]]:
    """Return the groups of each topic, restricted to the requested ones if there are any."""
    names = {group for groups in groups_by_topic.values() for group in groups}
    for group in requested_groups:
        if group not in names:
            raise JobError(
                f"--group: no group {group!a} consumes "
                f"{' or '.join(sorted(groups_by_topic))}.{suggest_similar_name(group, names)}",
                known_names_hint(names),
            )
    return {
        topic: [group for group in groups if not requested_groups or group in requested_groups]
        for topic, groups in groups_by_topic.items()
    }


def _group_step_row(group_step: GroupStep) -> Row:
    step, queue = group_step.step, group_step.queue
    row: Row = {
        "group": group_step.group,
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "sent": group_step.sent,
        "offset": group_step.offset,
    }
    if step is None:
        return (
            row
            | dict.fromkeys(("consumed", "set_to", "steps_over", "skips", "left", "others"))
            | {"note": group_step.problem}
        )
    return row | {
        "consumed": step.consumed,
        "set_to": step.to if group_step.needs_move else None,
        "steps_over": step.stepped,
        "skips": step.skipped.count,
        "left": step.left,
        "others": step.others.count,
        "note": _group_step_note(group_step),
    }


def _group_step_note(group_step: GroupStep) -> str:
    step = group_step.step
    assert step is not None
    if step.skipped.count:
        return (
            f"{format_count(step.skipped.count, 'message of others is', 'messages of others are')} skipped "
            f"({_joined_names_text(step.skipped.names)})"
        )
    if step.others.count:
        return (
            f"{step.left:,} more follow after {format_count(step.others.count, 'message')} of others "
            f"({_joined_names_text(step.others.names)}), which the group would lose"
        )
    return "" if step.stepped else "the group has consumed all of them"


def _joined_names_text(names: Sequence[str]) -> str:
    return "; ".join(names) + "; …" if len(names) > 1 else "".join(names)


def _print_step_summary(
    arguments: ReplayOptions, steps: Sequence[GroupStep], groups_by_topic: Mapping[str, Collection[str]]
) -> None:
    if arguments.quiet:
        return
    for topic, names in sorted(groups_by_topic.items()):
        if not names:
            print_line(f"no group in the target or the lake consumes {topic}")
    moving = [step for step in steps if step.needs_move]
    over = sum(step.step.stepped for step in moving if step.step is not None)
    if moving:
        print_line(
            f"{format_count(over, 'message')} of the replay can be skipped, in {format_count(len(moving), 'queue')} of "
            f"{_group_names_text(moving)}"
        )
    else:
        print_line("no group has messages of the replay to skip")
    if any(step.step is not None and step.step.left for step in steps) and not arguments.skip_others:
        print_line(
            "run it again once the groups have consumed the messages of others; with --skip-others they lose these"
        )
    consumed = sum(step.step.consumed for step in steps if step.step is not None)
    if consumed:
        print_line(f"{consumed:,} are already consumed, which cannot be undone")


def _group_names_text(steps: Sequence[GroupStep]) -> str:
    return ", ".join(sorted({step.group for step in steps})) or "no group"


def _set_offsets(arguments: ReplayOptions, lake: Lake, steps: Sequence[GroupStep], client: OffsetClient) -> bool:
    """Ask for confirmation, set the offsets for the groups, and return True if all were set."""
    by_group: dict[str, list[GroupStep]] = defaultdict(list)
    for step in steps:
        if step.needs_move:
            by_group[step.group].append(step)
    if not by_group:
        if not arguments.quiet:
            print_line(NOTHING)
        return True
    is_online = {
        group: check_connected_clients(
            client, group, sorted({step.queue.broker_name for step in found}), may_be_online=arguments.online
        )
        for group, found in sorted(by_group.items())
    }
    moving = [step for found in by_group.values() for step in found]
    text = f"{format_count(len(moving), 'offset')} of {_group_names_text(moving)}"
    confirm_action(
        f"Set {text}", intended_action=f"{text} would be set", refusal_message=NOTHING, is_confirmed=arguments.yes
    )
    is_done = True
    details = []
    for group, found in sorted(by_group.items()):
        wanted = {step.queue: step.step.to for step in found if step.step is not None}
        done = set_offsets(client.admin, group, wanted, is_online=is_online[group], only_forward=True)
        is_done = report_set_offsets(PROG, group, done, quiet=arguments.quiet) and is_done
        details += [
            f"{group} in {format_queue(one.queue)}: {one.before} to {one.wanted}" for one in done if not one.error
        ]
    if details:
        add_replay_event(lake, arguments.replay_id, ReplayEvent.UNDONE, detail="; ".join(details))
    else:
        print_warning(PROG, "no offset was set and read back")
    return is_done
