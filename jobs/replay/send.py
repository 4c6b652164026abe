"""Sending of messages: dry runs, new replays, and continued replays."""

from __future__ import annotations

import datetime
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, RocketMQError
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.lake_location import check_packs_location, open_packs
from commitlake.jobs.arguments.similar_names import print_warning, shorten_name_list
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.jobs.cli.damaged_file_errors import explain_invalid_where
from commitlake.jobs.cli.process import call_on_first_signal
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.cli.sql_limits import enforce_limits, time_and_memory_limits
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.replay.applied_changes import (
    open_session_for_transform,
    print_message_changes,
    read_message_changes,
)
from commitlake.jobs.replay.arguments import ReplayOptions, SendingArguments
from commitlake.jobs.replay.message_selection import SelectedMessages, select_messages, warn_of_unknown_names
from commitlake.jobs.replay.message_source import MessageSource, open_message_source
from commitlake.jobs.replay.replay_management import PROG, verify_replay_by_id, verify_sent_messages
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.consumed_counts import ChosenMessages, Places, fetch_live_offsets
from commitlake.pipelines.replay.groups.not_consumed_messages import NotConsumed
from commitlake.pipelines.replay.ledger import ROWS_LOST, Counts, ReplayState, check_can_continue, read_replay_state
from commitlake.pipelines.replay.message_changes import MessageChanges
from commitlake.pipelines.replay.other_replays import OtherReplay, check_no_unfinished_replay
from commitlake.pipelines.replay.plan import TARGET_TIMEOUT, QueueMapping, ReplayPlan, ReplayRequest
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.planning import QueueCount, count_messages_by_queue, plan_replay, record_replay
from commitlake.pipelines.replay.replay_rows import write_changed_rows, write_copied_rows
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.sending.tasks import check_no_speculation
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.replays import ReplayEvent

_COLUMNS = (
    Column("broker", 1), Column("topic"), Column("queue_id"), Column("messages"), Column("bytes", 2),
    Column("first_offset", 5), Column("last_offset", 6), Column("first_at", 3), Column("last_at", 4),
)  # fmt: skip
_OFFSET_COLUMNS = ("group_offset", "offsets_as_of")
_USUAL_MESSAGES, _USUAL_BYTES = 20_000, 50 << 20
"""Messages per second that one broker usually accepts, for estimates without a rate limit."""
_MAX_OTHERS = 5
_MAX_TIMES = 4


class SendOutcome(NamedTuple):
    """Exit code of a new replay, and the plan of what it sends.

    Attributes:
        exit_code: the job's exit code.
        plan: plan of the replay; None if there are no messages to send.
    """

    exit_code: ExitCode
    plan: ReplayPlan | None = None


def send_new_replay(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Plan a new replay, show what it sends, ask for confirmation, and send."""
    with open_message_source(arguments, lake) as source:
        warn_of_unknown_names(arguments, lake, source)
        chosen = select_messages(arguments, lake, source)
        code = send_selected_messages(arguments, lake, source, chosen, arguments.selection_text()).exit_code
        return ExitCode.DAMAGE if (source.damaged or source.missing) and code == ExitCode.OK else code


def send_selected_messages(
    arguments: SendingArguments,
    lake: Lake,
    source: MessageSource,
    selected_messages: SelectedMessages,
    choice_text: str,
) -> SendOutcome:
    """Plan a new replay of the chosen messages, show what it sends, ask for confirmation, and send.

    Args:
        arguments: options of the target and the pace.
        choice_text: the choice for people, for `replay list`.

    Raises:
        JobError: if `--where` is invalid, or sending is not confirmed.
        ReplayError: if the messages cannot be sent.
    """
    changes, condition, table = read_message_changes(arguments), selected_messages.condition, source.table
    choice = _count_selected_by_queue(arguments, lake, source, condition)
    if not choice:
        _print_not_consumed_notes(selected_messages.not_consumed)
        print("no message matches: nothing is sent", file=sys.stderr)
        _print_already_replayed_count(source, selected_messages)
        return SendOutcome(ExitCode.OK)
    request = _replay_request(arguments)
    if arguments.namesrv is None:
        _show_selected_queues(arguments, source, choice, selected_messages.not_consumed)
        if changes:
            plan, _ = plan_replay(lake, table, condition, choice, request, None, choice_text)
            print_message_changes(arguments, lake, _open_source_messages(lake, source, plan), changes)
        return SendOutcome(ExitCode.OK)
    with open_target_client(arguments.namesrv) as client:
        plan, others = plan_replay(
            lake, table, condition, choice, request, client, choice_text, on_unreadable=_warn_of_unreadable_replay
        )
        if arguments.dry_run or not arguments.quiet:
            _show_selected_queues(arguments, source, choice, selected_messages.not_consumed)
            _show_target(arguments, source, plan, choice, client.admin)
            _show_other_replays(others)
        if arguments.dry_run:
            if changes:
                print_message_changes(arguments, lake, _open_source_messages(lake, source, plan), changes)
            return SendOutcome(ExitCode.OK)
        if not request.accepts_unfinished:
            check_no_unfinished_replay(others)
        _confirm_sending(arguments, plan)
        runner = _open_runner(arguments, lake, plan)
        if source.is_copied:
            open_messages_for_append(lake)  # the ledger is stored in a lake, which may be new
        write_rows = partial(_write_replay_rows, lake, source, plan, changes) if changes or source.is_copied else None
        sent = record_replay(lake, plan, table, others, write_rows, is_copied=source.is_copied)
        left_out = plan.messages_to_send - sent.messages_to_send
        if left_out and not arguments.quiet:
            print_line(f"{format_count(left_out, 'message is', 'messages are')} dropped by {arguments.transform}")
        if not sent.messages:
            print("no message is left: nothing is sent", file=sys.stderr)
            return SendOutcome(ExitCode.OK)
        if not arguments.quiet:
            print_line(f"replay {plan.replay_id} begins")
        state = read_replay_state(lake, plan.replay_id)
        return SendOutcome(_run_replay(arguments, lake, state, client, runner), sent)


def _replay_request(arguments: SendingArguments) -> ReplayRequest:
    timeout = arguments.target_timeout
    return ReplayRequest(
        name_servers=arguments.namesrv,
        target_topic=arguments.to_topic,
        mapping=QueueMapping(arguments.queues),
        limit=arguments.limit,
        rate=arguments.rate,
        speed=arguments.speed,
        lag_limit=arguments.pause_if_lag,
        accepts_unfinished=arguments.again,
        target_timeout=TARGET_TIMEOUT if timeout is None else timeout,
    )


def _print_already_replayed_count(source: MessageSource, selected_messages: SelectedMessages) -> None:
    """Print the number of matching messages that are left out because a replay has sent them."""
    if selected_messages.with_replayed is None:
        return
    count = sum(queue.messages for queue in count_messages_by_queue(source.table, selected_messages.with_replayed))
    if count:
        were = format_count(count, "matching message was", "matching messages were")
        print(f"{were} sent by a replay, and left out: --include-replayed selects them, too", file=sys.stderr)


def _count_selected_by_queue(
    arguments: SendingArguments, lake: Lake, source: MessageSource, condition: str
) -> list[QueueCount]:
    tables = () if source.is_copied else ("messages",)
    limits = time_and_memory_limits("replay", arguments.where)
    with explain_invalid_where(arguments.where, lake, tables), enforce_limits(limits):
        return count_messages_by_queue(source.table, condition)


def _warn_of_unreadable_replay(replay_id: str, error: ReplayError) -> None:
    print_warning(PROG, f"whether the replay {replay_id} has the same messages is not known: {error}")


def _open_source_messages(lake: Lake, source: MessageSource, plan: ReplayPlan) -> PlannedMessages:
    """Return a reader of a plan's messages in their original form, before changes are applied."""
    return PlannedMessages(plan, source.table, None if source.is_copied else open_packs(lake))


def _write_replay_rows(lake: Lake, source: MessageSource, plan: ReplayPlan, changes: MessageChanges) -> None:
    """Store changed or copied messages in `replay_rows`."""
    messages = _open_source_messages(lake, source, plan)
    if changes:
        write_changed_rows(lake, messages, changes, open_session_for_transform(lake, changes))
    else:
        write_copied_rows(lake, messages)


def resume_replay(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Continue a replay that was stopped, or whose process ended before the sent messages were verified."""
    state = read_replay_state(lake, arguments.replay_id)
    plan = state.plan
    if state.event is ReplayEvent.UNDONE:
        raise JobError(
            f"the replay {plan.replay_id} was undone for some groups: plan a new one for the remaining messages"
        )
    if state.event is ReplayEvent.WITHDRAWN:
        raise JobError(f"the replay {plan.replay_id} was withdrawn, and sends nothing more: {state.detail}")
    if state.event is ReplayEvent.FINISHED and not state.is_verified and arguments.verify is not False:
        return verify_replay_by_id(arguments, lake)
    if state.event is ReplayEvent.FINISHED:
        raise JobError(f"the replay {plan.replay_id} is finished: each of its messages was sent or has failed")
    check_can_continue(lake, state)
    if state.has_lost_rows and not arguments.quiet:
        print_line(f"{ROWS_LOST}: it first looks in the target for all messages that it has sent")
    runner = _open_runner(arguments, lake, state.plan_with_limits(arguments.rate, arguments.speed, None))
    with open_target_client(arguments.namesrv or plan.target.name_servers) as client:
        return _run_replay(arguments, lake, state, client, runner)


def _open_runner(arguments: SendingArguments, lake: Lake, plan: ReplayPlan) -> Runner | None:
    """Return the runner of the tasks that send messages, or None if this process sends them.

    Raises:
        JobError: if they are to be sent on Spark at the pace at which they were stored.
        ReplayError: if Spark would start second attempts of tasks.
        CommitLakeError: in the cases of `get_spark_session`.
    """
    if not (isinstance(arguments, ReplayOptions) and arguments.spark):
        return None
    if plan.speed:
        raise JobError(
            "--spark cannot be used with --speed, because only a single sender can keep to the pace at which the "
            "messages were stored",
            "leave --spark out, or give --speed none",
        )
    from commitlake.connectors.spark.runner import SparkRunner
    from commitlake.jobs.arguments.runner import get_spark_session

    spark = get_spark_session("replay", lake.s3)
    check_no_speculation(spark, "--spark: ")
    return SparkRunner(spark)


def _run_replay(
    arguments: SendingArguments, lake: Lake, state: ReplayState, client: TargetClient, runner: Runner | None
) -> ExitCode:
    plan, request = state.plan, _replay_request(arguments)
    check_packs_location(lake)
    notify: Callable[[str], None] = (lambda _: None) if arguments.quiet else print_line
    with counted_progress("sending", plan.messages_to_send, "messages", quiet=arguments.quiet) as advance:
        run = ReplayRun(lake, state, request, client, runner, on_progress=advance, notify=notify)
        with call_on_first_signal(run.pace.stop):
            began = time.monotonic()
            counts = run.send_replay()
            seconds = time.monotonic() - began
    result = _print_replay_summary(arguments, plan, counts, seconds)
    if arguments.verify is not False and result is not ExitCode.INTERRUPTED:
        return max(result, verify_sent_messages(arguments, lake, run.messages, client.puller))
    return result


def _print_replay_summary(arguments: SendingArguments, plan: ReplayPlan, counts: Counts, seconds: float) -> ExitCode:
    left = plan.messages_to_send - counts.sent - counts.failed
    if not arguments.quiet:
        wanted = format_count(plan.messages_to_send, "message is", "messages are")
        print_line(
            f"replay {plan.replay_id}: {counts.sent:,} of {wanted} in the target (this run took {seconds:,.1f} s)"
        )
    if counts.failed:
        print_warning(
            PROG,
            f"{format_count(counts.failed, 'message')} could not be sent: 'commitlake query --table replay_messages "
            f"--where \"replay_id = '{plan.replay_id}' AND error IS NOT NULL\"' shows why",
        )
    if left > 0:
        print_warning(
            PROG,
            f"{format_count(left, 'message is', 'messages are')} left: 'commitlake replay resume {plan.replay_id}' "
            "continues",
        )
        return ExitCode.INTERRUPTED
    return ExitCode.DAMAGE if counts.failed else ExitCode.OK


def _show_selected_queues(
    arguments: SendingArguments,
    source: MessageSource,
    queue_counts: Sequence[QueueCount],
    not_consumed: NotConsumed | None,
) -> None:
    columns = list(_COLUMNS if not_consumed is None else _COLUMNS + _OFFSET_COLUMNS)
    write_rows(arguments.output, (_queue_row(queue, not_consumed) for queue in queue_counts), columns, source.missing)
    _print_not_consumed_notes(not_consumed)
    messages, size = sum(queue.messages for queue in queue_counts), sum(queue.bytes for queue in queue_counts)
    times = [moment for queue in queue_counts for moment in (queue.first_at, queue.last_at) if moment is not None]
    stored = f"stored from {time_text(min(times))} to {time_text(max(times))}" if times else "stored at unknown times"
    print(
        f"{format_count(messages, 'message')} of {format_count(len(queue_counts), 'queue')}, {size_text(size)} in the "
        f"log, {stored}",
        file=sys.stderr,
    )


def _queue_row(queue: QueueCount, not_consumed: NotConsumed | None) -> Row:
    row: Row = {name: getattr(queue, name) for name in _COLUMNS}
    times = {"first_at": queue.first_at, "last_at": queue.last_at}
    if not_consumed is not None:
        row["group_offset"] = not_consumed.committed_offset(queue.broker, queue.topic, queue.queue_id)
        times["offsets_as_of"] = not_consumed.as_of.get(queue.broker)
    return row | {name: None if moment is None else time_text(moment) for name, moment in times.items()}


def _print_not_consumed_notes(not_consumed: NotConsumed | None) -> None:
    """Print the time and the source of the offsets that determine which messages a group has not consumed."""
    if not_consumed is None:
        return
    print(
        f"not consumed by {not_consumed.group}, by its offsets {_offsets_age_text(not_consumed.as_of)}", file=sys.stderr
    )
    for note in not_consumed.notes:
        print(note, file=sys.stderr)


def _offsets_age_text(times_by_broker: Mapping[str, datetime.datetime]) -> str:
    """Return a text on when the stores' offsets were read, and how long ago that is."""
    now = datetime.datetime.now(datetime.UTC)
    by_time: dict[datetime.datetime, list[str]] = defaultdict(list)
    for broker, moment in sorted(times_by_broker.items()):
        by_time[moment].append(broker)
    found = [
        f"of {time_text(moment)} ({duration_text(max(datetime.timedelta(), now - moment))} ago)"
        + (f" on {shorten_name_list(brokers)}" if len(by_time) > 1 else "")
        for moment, brokers in by_time.items()
    ]
    more = f", and of {len(found) - _MAX_TIMES} other times" if len(found) > _MAX_TIMES else ""
    return ", ".join(found[:_MAX_TIMES]) + more


def _show_target(
    arguments: SendingArguments,
    source: MessageSource,
    plan: ReplayPlan,
    queue_counts: Sequence[QueueCount],
    admin: Admin,
) -> None:
    """Print the target of the messages, the groups that receive them, and the duration of sending."""
    topics: dict[str, int] = {}
    for queue in plan.target.queues:
        topics[queue.topic] = topics.get(queue.topic, 0) + 1
    lines = [f"into {topic}: {format_count(queues, 'queue')}" for topic, queues in topics.items()]
    brokers = sorted({queue.broker for queue in queue_counts})
    known = source.offsets(brokers)
    is_archived = False
    chosen = ChosenMessages(source.table, plan.condition, queue_counts, known.as_of)
    for topic in topics:
        try:
            groups = admin.groups_of_topic(topic)
        except RocketMQError as error:
            lines.append(f"the groups that consume {topic} are not known: {error}")
            continue
        for group in sorted(groups):
            places, by = known.groups.get(group), "it"
            is_archived = is_archived or places is not None
            if places is None:
                places, by = _fetch_target_offsets(admin, group, brokers), "by its offsets in the target, it"
            lines.append(f"{group} consumes {topic}, and receives them; {_already_consumed_text(chosen, places, by)}")
        if not groups:
            lines.append(f"no group in the target consumes {topic}")
    if is_archived:
        lines.append(f"what groups have consumed is by their offsets {_offsets_age_text(known.as_of)}")
    if plan.limit and plan.limit < plan.messages:
        lines.append(f"only the first {plan.limit:,} are sent")
    lines.append(_sending_duration_text(arguments, plan, queue_counts))
    print("\n".join(lines), file=sys.stderr)


def _already_consumed_text(messages: ChosenMessages, group_offsets: Places, subject_text: str) -> str:
    """Return a text on how many of the selected messages a group has already consumed."""
    if not group_offsets:
        return "what it has consumed of these messages is not known"
    consumed = messages.count_consumed(group_offsets)
    verb = (
        "received" if messages.has_retries_or_dead_letters else "consumed"
    )  # the group of a dead letter has failed on it
    text = f"{subject_text} has {verb} {consumed.messages:,} of these messages before"
    return text + (
        f", and of {format_count(consumed.unknown, 'other', 'others')} it is not known" if consumed.unknown else ""
    )


def _fetch_target_offsets(admin: Admin, group: str, brokers: Sequence[str]) -> Places:
    """Return a group's offsets on the brokers to which messages are sent; empty if they cannot be read."""
    try:
        return fetch_live_offsets(admin, group, brokers)
    except RocketMQError:
        return {}


def _sending_duration_text(arguments: SendingArguments, plan: ReplayPlan, queue_counts: Sequence[QueueCount]) -> str:
    """Return a text on the duration of sending, as far as the chosen pace determines it."""
    slowest: list[tuple[float, str]] = []
    if arguments.rate:
        slowest.append((plan.messages_to_send / arguments.rate, f"at {arguments.rate:g} messages/s"))
    times = [moment for queue in queue_counts for moment in (queue.first_at, queue.last_at) if moment is not None]
    if arguments.speed and times:
        seconds = (max(times) - min(times)).total_seconds() / arguments.speed
        slowest.append((seconds, f"at {arguments.speed:g} times the pace at which they were stored"))
    if slowest:
        seconds, pace = max(slowest)
        return f"{pace}, sending takes {seconds:,.0f} s"
    size = plan.bytes * plan.messages_to_send / max(1, plan.messages)
    seconds = max(plan.messages_to_send / _USUAL_MESSAGES, size / _USUAL_BYTES)
    return f"without a limit, sending takes about {max(1.0, seconds):,.0f} s if a broker accepts {_USUAL_MESSAGES:,}/s"


def _show_other_replays(other_replays: Sequence[OtherReplay]) -> None:
    for other in other_replays[-_MAX_OTHERS:]:
        state, name = other.state, other.state.plan.replay_id
        what = f"has not finished ({state.event})" if other.is_unfinished else f"is {state.event}"
        belong = format_count(other.messages, "of these messages belongs", "of these messages belong")
        print(f"{belong} to the replay {name} to the same queues, which {what}", file=sys.stderr)


def _confirm_sending(arguments: SendingArguments, plan: ReplayPlan) -> None:
    """Ask the user to confirm the plan before anything is sent."""
    confirm_action(
        f"Send {format_count(plan.messages_to_send, 'message')} to {plan.target.name_servers}",
        intended_action=f"{format_count(plan.messages_to_send, 'message')} would be sent",
        refusal_message="nothing was sent",
        is_confirmed=arguments.yes or plan.messages_to_send <= arguments.confirm_over,
    )
