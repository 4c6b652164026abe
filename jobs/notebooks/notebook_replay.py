"""A replay in one call for notebooks, and reports on what it would send and has sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.sizes import size_text
from commitlake.pipelines.replay.groups.outcomes import CopyState, GroupFollower, GroupOutcomes, read_replay_rows
from commitlake.pipelines.replay.ledger import Counts, Ledger, ReplayState, read_replay_state, read_replay_states
from commitlake.pipelines.replay.other_replays import check_no_unfinished_replay
from commitlake.pipelines.replay.plan import ReplayPlan, ReplayRequest
from commitlake.pipelines.replay.planning import CountsOverTime, QueueCount, plan_replay, record_replay
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.verifying import verify_replay
from commitlake.schemas.errors import UsageError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    MAX_SERIES,
    Block,
    Kind,
    LineChart,
    Paragraph,
    Report,
    Section,
    Series,
    Table,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.replays import ReplayEvent
from commitlake.schemas.times import TimeWindows, format_time

_QUEUE_COLUMNS = (
    Column("store", key="broker"), Column("topic"), Column("queue", key="queue_id", is_number=True),
    Column("messages", is_number=True), Column("bytes", is_number=True),
    Column("first offset", key="first_offset", is_number=True),
    Column("last offset", key="last_offset", is_number=True), Column("first", key="first_at"),
    Column("last", key="last_at"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Result of a notebook's replay: its plan, its counts, and how far groups have consumed its messages.

    Attributes:
        plan: plan of the replay.
        counts: numbers of sent messages, and of messages that could not be sent.
        groups: state of the messages in each group that consumes their topics.
        is_new: whether this run has sent them; else an earlier run of the notebook has.
    """

    plan: ReplayPlan
    counts: Counts
    groups: Sequence[GroupOutcomes]
    is_new: bool


def replay_once(
    lake: Lake,
    table: DeltaTable,
    condition: str,
    queue_counts: Sequence[QueueCount],
    *,
    name_servers: str,
    target_topic: str | None = None,
    rate: float | None = None,
    includes_replayed: bool = False,
) -> ReplayOutcome | None:
    """Send messages unless an earlier replay sent the same ones, and measure how far groups have consumed them.

    Args:
        table: the lake's table `messages`.
        condition: SQL condition for the messages.
        queue_counts: the number of selected messages of each queue.
        name_servers: name servers of the target, `host:port` of each, separated by semicolons; empty to send nothing.
        target_topic: target topic of all messages; None for the topic that each was first sent to.
        rate: the largest number of messages per second; None for no limit.
        includes_replayed: whether to send messages that an earlier replay has sent.

    Returns:
        The result of the replay; None if there are no messages, or no name servers.

    Raises:
        UsageError: if an earlier replay of the same messages has not finished, or if the messages that are read back
            from the target differ from those that were sent.
        ReplayError: if they cannot be sent.
        RocketMQError: if the target does not answer.
    """
    if not name_servers or not queue_counts:
        return None
    request = ReplayRequest(
        name_servers=name_servers, target_topic=target_topic, rate=rate, accepts_unfinished=includes_replayed
    )
    earlier = None if includes_replayed else _find_earlier_replay(lake, condition, request)
    with open_target_client(name_servers) as client:
        plan = earlier or _send_new_replay(lake, table, condition, queue_counts, request, client)
        rows = read_replay_rows(lake, plan.replay_id)
        groups = [
            GroupFollower(client, plan, group, rows.filter(pc.equal(rows.column("target_topic"), name))).read_outcomes()
            for name in sorted({queue.topic for queue in plan.target.queues})
            for group in client.admin.groups_of_topic(name)
        ]
    return ReplayOutcome(plan, Ledger(lake, plan.replay_id).count_sent_and_failed(), groups, is_new=earlier is None)


def _find_earlier_replay(lake: Lake, condition: str, request: ReplayRequest) -> ReplayPlan | None:
    """Return the newest finished replay of the same messages to the same target, ignoring withdrawn replays."""
    states = [
        state
        for state in read_replay_states(lake).values()
        if state.event is not ReplayEvent.WITHDRAWN
        and state.plan.condition == condition
        and (state.plan.target.name_servers, state.plan.target.topic) == (request.name_servers, request.target_topic)
    ]
    if not states:
        return None
    state = states[-1]
    if state.event is ReplayEvent.UNDONE:
        raise UsageError(
            f"the replay {state.plan.replay_id} of the same messages was undone for some groups: nothing was sent. "
            "With again=yes its messages are sent to all groups again"
        )
    _check_finished(state)
    return state.plan


def _check_finished(state: ReplayState) -> None:
    if state.event is not ReplayEvent.FINISHED:
        raise UsageError(
            f"the replay {state.plan.replay_id} of the same messages is not finished ({state.event}): 'commitlake "
            f"replay resume {state.plan.replay_id}' continues it"
        )


def _send_new_replay(
    lake: Lake,
    table: DeltaTable,
    condition: str,
    queue_counts: Sequence[QueueCount],
    request: ReplayRequest,
    client: TargetClient,
) -> ReplayPlan:
    """Plan a replay, send its messages, and compare them with the target."""
    plan, others = plan_replay(lake, table, condition, queue_counts, request, client, "by a notebook")
    if not request.accepts_unfinished:
        check_no_unfinished_replay(others)
    record_replay(lake, plan, table, others)
    run = ReplayRun(lake, read_replay_state(lake, plan.replay_id), request, client)
    run.send_replay()
    _check_finished(read_replay_state(lake, plan.replay_id))
    found = verify_replay(lake, run.messages, client.puller)
    if found.problems:
        raise UsageError(
            f"the target does not have all messages of the replay {plan.replay_id} as they were sent: 'commitlake "
            f"replay verify {plan.replay_id}' shows the {format_count(found.problems.total(), 'difference')}"
        )
    return plan


def selected_messages_report(
    queue_counts: Sequence[QueueCount], counts_over_time: CountsOverTime, rate: float | None
) -> Report:
    """Return a report on the selected messages: their numbers by queue, and over time.

    Args:
        queue_counts: The selected messages by queue.
        counts_over_time: Their numbers by time and topic.
        rate: Messages per second at which they would be sent, if it is limited.
    """
    first, *others = _selected_messages_sentences(queue_counts, rate)
    queues = Table.of("Queues", _QUEUE_COLUMNS, map(asdict, queue_counts))
    selected: list[Block] = [*map(Paragraph, others), queues]
    if counts_over_time.starts:
        windows = TimeWindows(counts_over_time.starts[0], counts_over_time.step, len(counts_over_time.starts))
        ordered = sorted(counts_over_time.messages.items(), key=lambda item: (-sum(item[1]), item[0]))[:MAX_SERIES]
        series = [Series(topic, [count or None for count in counts]) for topic, counts in ordered]
        selected.append(LineChart("Selected messages by topic", windows, series))
    return Report("Replay", Verdict(Kind.INFO, first), [], [Section("selected", "Selected", selected)], "replay")


def _selected_messages_sentences(queue_counts: Sequence[QueueCount], rate: float | None) -> Iterator[str]:
    """Yield sentences on what a replay of the selected messages would send."""
    if not queue_counts:
        yield "No message matches: there is nothing to send."
        return
    messages, size = sum(queue.messages for queue in queue_counts), sum(queue.bytes for queue in queue_counts)
    topics = sorted({queue.topic for queue in queue_counts})
    times = [moment for queue in queue_counts for moment in (queue.first_at, queue.last_at) if moment is not None]
    stored = f"from {format_time(min(times))} to {format_time(max(times))} UTC" if times else "at unknown times"
    yield (
        f"{format_count(messages, 'message')} of {format_count(len(topics), 'topic')} ({', '.join(topics[:5])}"
        f"{', …' if len(topics) > 5 else ''}), {size_text(size)} in the log, stored {stored}."
    )
    if rate is not None:
        yield f"At {rate:g} messages/s, sending takes {messages / rate:,.0f} s."


def replay_outcome_report(outcome: ReplayOutcome | None) -> Report:
    """Return a report on what a replay has sent, and how far groups have consumed it; None for a dry run."""
    first, *others = _replay_outcome_sentences(outcome)
    groups = [
        {
            "group": one.group,
            "messages": one.rows.num_rows,
            **{state.text: one.count(state) for state in CopyState},
            "retried": len(one.retries),
        }
        for one in (outcome.groups if outcome is not None else ())
    ]
    sections = [Section("groups", "Groups", [*map(Paragraph, others), Table.of_values("Groups", groups)])]
    return Report("Replay", Verdict(Kind.INFO, first), [], sections, "replay")


def _replay_outcome_sentences(outcome: ReplayOutcome | None) -> Iterator[str]:
    """Yield sentences on what a replay has sent."""
    if outcome is None:
        yield "Nothing was sent: this is a dry run. To send, set the parameter namesrv to the target's name servers."
        return
    plan, counts = outcome.plan, outcome.counts
    was = "is" if outcome.is_new else "was sent by an earlier run, and is not sent again (again=yes does): it is"
    yield (
        f"Replay {plan.replay_id} to {plan.target.name_servers} {was} finished: {counts.sent:,} of "
        f"{plan.messages_to_send:,} messages are there."
    )
    if counts.failed:
        yield f"{format_count(counts.failed, 'message')} could not be sent: see the table replay_messages."
    if not outcome.groups:
        yield "No group in the target consumes them."
