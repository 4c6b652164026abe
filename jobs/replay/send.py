"""Sending of messages: dry runs, new replays, and continued replays."""

from __future__ import annotations

import datetime
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.rocketmq import Admin, RocketMQError
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.arguments.similar_names import abbreviate_name_list, print_warning
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.jobs.cli.damaged_files import raise_for_damaged_file
from commitlake.jobs.cli.process import call_on_first_signal
from commitlake.jobs.cli.progress import counted_progress
from commitlake.jobs.cli.sql_limits import enforce_limits, time_and_memory_limits
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.replay.applied_changes import read_changes, show_changes, write_changes
from commitlake.jobs.replay.arguments import ReplayOptions, SendingArguments
from commitlake.jobs.replay.message_selection import SelectedMessages, select_messages
from commitlake.jobs.replay.message_source import MessageSource, open_message_source
from commitlake.jobs.replay.replay_management import PROG
from commitlake.jobs.replay.unknown_names import warn_of_unknown_names
from commitlake.jobs.replay.verify import verify_replay_by_id, verify_sent_messages
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.consumed_counts import ChosenMessages, Places, fetch_live_offsets
from commitlake.pipelines.replay.groups.not_consumed_messages import NotConsumed
from commitlake.pipelines.replay.ledger import (
    ROWS_LOST,
    Counts,
    Ledger,
    ReplayState,
    add_replay_event,
    check_has_copies,
    check_is_known_whether_begun,
    check_is_not_running,
    read_replay_state,
)
from commitlake.pipelines.replay.message_changes import MessageChanges
from commitlake.pipelines.replay.other_replays import (
    OtherReplay,
    check_no_unfinished_replay,
    find_other_replays,
    record_plan,
)
from commitlake.pipelines.replay.plan import QueueMapping, ReplayPlan, Target
from commitlake.pipelines.replay.planned_messages import PlannedMessages, open_planned_messages
from commitlake.pipelines.replay.planning import (
    QueueCount,
    check_queue_numbers,
    count_messages_by_queue,
    divide_into_parts,
    find_original_topics,
    make_plan,
    needed_target_topics,
    plan_changed_messages,
    target_queue_ends,
)
from commitlake.pipelines.replay.replay_rows import write_copied_rows
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.rate_limit import Pace
from commitlake.pipelines.replay.sending.replay_control import watch_replay
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.share_sender import ReplaySettings
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.sending.tasks import check_no_speculation
from commitlake.schemas.count_texts import format_count
from commitlake.schemas.errors import ExitCode
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
        code = send_selected_messages(arguments, lake, source, chosen, _selection_options_text(arguments)).exit_code
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
    changes, condition = read_changes(arguments), selected_messages.condition
    choice = _count_selected_by_queue(arguments, lake, source, condition)
    if not choice:
        _print_not_consumed_notes(selected_messages.not_consumed)
        print("no message matches: nothing is sent", file=sys.stderr)
        _print_already_replayed_count(source, selected_messages)
        return SendOutcome(ExitCode.OK)
    if arguments.namesrv is None:
        _show_selected_queues(arguments, source, choice, selected_messages.not_consumed)
        nowhere = Target("", None, QueueMapping(arguments.queues), ())
        if changes:
            plan = _make_plan(arguments, source, condition, choice, nowhere, choice_text)
            show_changes(arguments, lake, _open_planned_messages(lake, source, plan), changes)
        return SendOutcome(ExitCode.OK)
    with open_target_client(arguments.namesrv) as client:
        origins = find_original_topics(source.table, condition) if arguments.to_topic is None else []
        topics = needed_target_topics(choice, arguments.to_topic, origins)
        queues = target_queue_ends(client, topics)
        target = Target(arguments.namesrv, arguments.to_topic, QueueMapping(arguments.queues), queues)
        check_queue_numbers(choice, target)
        plan = _make_plan(arguments, source, condition, choice, target, choice_text)
        others = _find_other_replays(lake, source, plan)
        if arguments.dry_run or not arguments.quiet:
            _show_selected_queues(arguments, source, choice, selected_messages.not_consumed)
            _show_target(arguments, source, plan, choice, client.admin)
            _show_other_replays(others)
        if arguments.dry_run:
            if changes:
                show_changes(arguments, lake, _open_planned_messages(lake, source, plan), changes)
            return SendOutcome(ExitCode.OK)
        if not arguments.again:
            check_no_unfinished_replay(others)
        _confirm_sending(arguments, plan)
        runner = _open_runner(arguments, lake, plan)
        if source.is_copied:
            open_messages_for_append(lake)  # the ledger is stored in a lake, which may be new
        # Rows before the plan: whatever plan is recorded can be sent, also after a crash between the two.
        sent = _write_changed_messages(arguments, lake, source, plan, changes)
        record_plan(lake, sent, source.table, others, plan.selection)
        if not arguments.quiet:
            print_line(f"replay {plan.replay_id} begins")
        return SendOutcome(_run_replay(arguments, lake, sent, client, runner, is_resumed=False), sent)


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
    try:
        with enforce_limits(time_and_memory_limits("replay", arguments.where)):
            return count_messages_by_queue(source.table, condition)
    except QueryError as error:
        if arguments.where is None:
            raise
        if not source.is_copied:
            raise_for_damaged_file(lake, ["messages"], str(error))
        raise JobError(f"--where is not a valid condition: {error}") from None


def _make_plan(
    arguments: SendingArguments,
    source: MessageSource,
    condition: str,
    queue_counts: Sequence[QueueCount],
    target: Target,
    choice_text: str,
) -> ReplayPlan:
    parts = divide_into_parts(source.table, condition)
    plan = make_plan(queue_counts, parts, condition, target, limit=arguments.limit, command=choice_text)
    return replace(plan, rate=arguments.rate or 0.0, speed=arguments.speed or 0.0, lag_limit=arguments.pause_if_lag)


def _find_other_replays(lake: Lake, source: MessageSource, plan: ReplayPlan) -> list[OtherReplay]:
    try:
        return find_other_replays(lake, plan, source.table, on_unreadable=_warn_of_unreadable_replay)
    except LakeError:
        if source.is_copied:  # the ledger's lake may not exist yet
            return []
        raise


def _warn_of_unreadable_replay(replay_id: str, error: ReplayError) -> None:
    print_warning(PROG, f"whether the replay {replay_id} has the same messages is not known: {error}")


def _open_planned_messages(lake: Lake, source: MessageSource, plan: ReplayPlan) -> PlannedMessages:
    """Return a reader of a plan's messages in their original form, before changes are applied."""
    packs = None if source.is_copied else open_packs(lake)
    return PlannedMessages(plan, source.table, packs)


def _write_changed_messages(
    arguments: SendingArguments, lake: Lake, source: MessageSource, plan: ReplayPlan, changes: MessageChanges
) -> ReplayPlan:
    """Store changed or copied messages in `replay_rows`, and return a plan that sends these rows."""
    if changes:
        write_changes(lake, _open_planned_messages(lake, source, plan), changes)
    elif source.is_copied:
        write_copied_rows(lake, _open_planned_messages(lake, source, plan))
    else:
        return plan
    sent = plan_changed_messages(plan, lake.table("replay_rows"))
    left_out = plan.messages_to_send - sent.messages_to_send
    if left_out and not arguments.quiet:
        print_line(f"{format_count(left_out, 'message is', 'messages are')} dropped by {arguments.transform}")
    return replace(sent, selection="") if source.is_copied else sent


def resume_replay(arguments: ReplayOptions, lake: Lake) -> ExitCode:
    """Continue a replay that was stopped, or whose process ended before the sent messages were verified."""
    state = read_replay_state(lake, arguments.replay_id)
    plan = state.plan
    if state.event is ReplayEvent.UNDONE:
        raise JobError(
            f"the replay {plan.replay_id} was undone for some groups: plan a new one for the remaining messages"
        )
    if state.event is ReplayEvent.WITHDRAWN:
        raise JobError(f"the replay {plan.replay_id} was withdrawn: {state.detail}")
    if state.event is ReplayEvent.FINISHED and not state.is_verified and arguments.verify is not False:
        return verify_replay_by_id(arguments, lake)
    if state.event is ReplayEvent.FINISHED:
        raise JobError(f"the replay {plan.replay_id} is finished: all of its messages have an outcome")
    check_is_known_whether_begun(state)
    if state.has_lost_rows and not arguments.quiet:
        print_line(f"{ROWS_LOST}: it first looks in the target for all messages that it has sent")
    check_has_copies(state)
    check_is_not_running(state, Ledger(lake, plan.replay_id).last_outcome_time())
    if arguments.rate is not None or arguments.speed is not None:  # replaces earlier requests
        add_replay_event(lake, plan.replay_id, ReplayEvent.THROTTLED, rate=arguments.rate, speed=arguments.speed)
    paced = replace(
        plan,
        rate=state.current_rate if arguments.rate is None else arguments.rate,
        speed=state.current_speed if arguments.speed is None else arguments.speed,
        lag_limit=arguments.pause_if_lag or plan.lag_limit,
    )
    runner = _open_runner(arguments, lake, paced)
    with open_target_client(arguments.namesrv or plan.target.name_servers) as client:
        return _run_replay(
            arguments,
            lake,
            paced,
            client,
            runner,
            is_resumed=_has_begun_sending(state),
            has_lost_rows=state.has_lost_rows,
        )


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
            "--spark cannot keep to the pace at which the messages were stored, which needs a single sender",
            "leave --spark out, or give --speed none",
        )
    from commitlake.connectors.spark.runner import SparkRunner
    from commitlake.jobs.arguments.runner import get_spark_session

    spark = get_spark_session("replay", lake.s3)
    check_no_speculation(spark, "--spark: ")
    return SparkRunner(spark)


def _has_begun_sending(state: ReplayState) -> bool:
    return state.owner is not None


def _run_replay(
    arguments: SendingArguments,
    lake: Lake,
    plan: ReplayPlan,
    client: TargetClient,
    runner: Runner | None,
    *,
    is_resumed: bool,
    has_lost_rows: bool = False,
) -> ExitCode:
    pace = Pace(plan.rate, plan.speed)
    settings = (
        ReplaySettings()
        if arguments.target_timeout is None
        else ReplaySettings(arguments.target_timeout.total_seconds())
    )
    messages = open_planned_messages(lake, plan, open_packs(lake))
    with counted_progress("sending", plan.messages_to_send, "messages", quiet=arguments.quiet) as advance:
        shown = 0

        def on_progress(counts: Counts) -> None:
            nonlocal shown
            done = counts.sent + counts.failed
            # The progress bar takes differences.
            advance(done - shown)
            shown = done

        run = ReplayRun(lake, messages, client, pace, settings, on_progress, runner=runner)
        tell = print_line if not arguments.quiet else _discard_message
        with (
            watch_replay(lake, plan.replay_id, pace, client.admin, plan.lag_limit, tell),
            call_on_first_signal(pace.stop),
        ):
            began = time.monotonic()
            counts = run.run(is_resumed=is_resumed, has_lost_rows=has_lost_rows)
            seconds = time.monotonic() - began
    result = _print_summary(arguments, plan, counts, seconds)
    if arguments.verify is not False and result is not ExitCode.INTERRUPTED:
        return max(result, verify_sent_messages(arguments, lake, messages, client.puller))
    return result


def _discard_message(_: str) -> None:
    """Ignore a line of text, where a function that prints lines is required."""


def _print_summary(arguments: SendingArguments, plan: ReplayPlan, counts: Counts, seconds: float) -> ExitCode:
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
    """Print when and from which offsets it was determined which messages a group has not consumed."""
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
        + (f" on {abbreviate_name_list(brokers)}" if len(by_time) > 1 else "")
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
    """Return a group's offsets in the target on brokers with the given names; empty if they cannot be read."""
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


def _selection_options_text(arguments: ReplayOptions) -> str:
    names = (
        "store",
        "from_broker",
        "topic",
        "queue",
        "key",
        "keys_file",
        "tag",
        "id",
        "broker",
        "where",
        "dlq_of",
        "not_consumed_by",
        "all_copies",
        "include_replayed",
        "born",
        "transform",
        "mask",
    )
    given: list[tuple[str, object]] = []
    for name in names:
        value = getattr(arguments, name)
        if value is True:
            given.append((name, ""))
        elif value not in (None, (), False):
            given += [(name, each) for each in (value if isinstance(value, tuple) else [value])]
    times = (("from", arguments.start), ("to", arguments.end), ("offsets_at", arguments.offsets_at))
    given += [(name, time_text(moment)) for name, moment in times if moment]
    return " ".join(f"--{name.replace('_', '-')} {value}".rstrip() for name, value in given)
