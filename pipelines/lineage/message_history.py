"""A story: the history of the messages of one business key, message id or offset, as plain objects.

A story is a graph. Its nodes are *steps*: a stored record, one consumption by a group, or an end that the lake does
not have. Its *edges* are actions of a broker or a client, in the direction of time. *Outcomes* describe the current
state in words: one for each message and each group that is known to want it.

    Story
      steps      in time order; Step.record, Step.consumption or Step.missing says more
      edges      source and target are ids of steps
      outcomes   one for each message, or for each message and group
      cautions   sentences on what was not searched, is not known, or was left out

`Story.iterate_branches` walks the graph as a tree, which a terminal, a page and a diagram can draw alike. The objects
are frozen, refer to each other by id, and hold no open tables or files: they can be compared, pickled and stored.

All texts come from brokers and their clients, so they may contain anything: control characters, markup, megabytes. Code
that displays them must escape them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from commitlake.schemas.errors import UsageError
from commitlake.schemas.times import format_iso_time

MAX_RECORDS = 1_000
"""Default limit of matching records in a story; if there are more, the newest are taken."""
MAX_STEPS = 5_000
"""Largest number of steps in a story."""
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Question:
    """Query for the history of messages with a key, a message id or a physical offset, with options.

    It has no `Selection`, which may have several keys and many other conditions, because a story is of one of them.

    Attributes:
        key: A business key.
        message_id: An offset message id, or a client's message id (UNIQ_KEY).
        place: Broker and physical offset of a record.
        start: Only records stored at or after this time.
        end: Only records stored before this time.
        depth: Number of edges to follow from matching records; None for all.
        related_by: A property; records that share its value with matching records are included.
        limit: Largest number of matching records; if there are more, the newest are taken.

    Raises:
        UsageError: if not exactly one of the three is given, or a number is out of range.
    """

    key: str | None = None
    message_id: str | None = None
    place: tuple[str, int] | None = None
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    depth: int | None = None
    related_by: str | None = None
    limit: int = MAX_RECORDS

    def __post_init__(self) -> None:
        asked = [name for name in ("key", "message_id", "place") if getattr(self, name) is not None]
        if len(asked) != 1:
            raise UsageError(
                f"expected only one of key, message id and offset, found {' and '.join(asked) or 'none of them'}"
            )
        if self.depth is not None and self.depth < 0:
            raise UsageError(f"depth: expected 0 or more, found {self.depth}")
        if self.limit < 1:
            raise UsageError(f"limit: expected 1 or more, found {self.limit}")
        if self.place is not None and not 0 <= self.place[1] < 1 << 63:
            # Python does not print integers of thousands of digits.
            found = f"{self.place[1]}" if abs(self.place[1]) < 1 << 128 else "a number of more than 128 bits"
            raise UsageError(f"offset: expected a physical offset from 0 to 2^63 - 1, found {found}")

    @property
    def question_text(self) -> str:
        """The query as text, such as `key order-4711`."""
        if self.place is not None:
            text = f"offset {self.place[0]}:{self.place[1]}"
        elif self.message_id is not None:
            text = f"message id {self.message_id[:_MAX_SHOWN]}"
        else:
            text = f"key {(self.key or '')[:_MAX_SHOWN]}"
        if self.start is not None:
            text += f", from {format_iso_time(self.start)}"
        if self.end is not None:
            text += f", before {format_iso_time(self.end)}"
        if self.related_by is not None:
            text += f" and those with the same {self.related_by[:_MAX_SHOWN]}"
        return text


class StepKind(StrEnum):
    """Kind of a step: that of its record, as in `messages.kind`, or `consumption`, or `missing`."""

    NORMAL = "normal"
    DELAY = "delay"
    RETRY = "retry"
    DLQ = "dlq"
    HALF = "half"
    OP = "op"
    TRACE = "trace"
    TIMER = "timer"
    SYSTEM = "system"
    CONSUMPTION = "consumption"
    """A group consumed a message, or tried to."""
    MISSING = "missing"
    """The lake does not have the record; `Step.missing` says why."""


class OutcomeState(StrEnum):
    """State of a message, in one group or as a whole, such as consumed, waiting or dead."""

    CONSUMED = "consumed"
    """The group consumed it: a trace, or a consume record, says so."""
    PASSED = "passed"
    """The group's offset is beyond it. The group has acknowledged or skipped it; it is not known which."""
    NOT_CONSUMED = "not_consumed"
    """The group's offset has not passed it yet."""
    WAITING = "waiting"
    """The broker holds it back: a delay level, a timer, or the delay before a retry."""
    OVERDUE = "overdue"
    """The broker still held it back when the log was read, although it was due."""
    PREPARED = "prepared"
    """A half message that has been neither committed nor rolled back."""
    ROLLED_BACK = "rolled_back"
    """The transaction was rolled back: no group gets it."""
    CANCELLED = "cancelled"
    """No group gets it: its producer cancelled a timer, or the broker gave a half message up."""
    DEAD = "dead"
    """A dead letter that was not sent again."""
    REDRIVEN = "redriven"
    """A dead letter that was sent again; the new message has its own outcomes."""
    FAILED = "failed"
    """A consumption failed, and no later record of it is in the lake."""
    UNKNOWN = "unknown"
    """The state is not known from the lake."""


class Evidence(StrEnum):
    """Kind of evidence for an outcome, the strongest first."""

    TRACE = "trace"
    """Records of the client on each consumption; for JMQ, the broker's consume records."""
    RECORDS = "records"
    """Records that the broker stored: copies, dead letters, marks of transactions."""
    OFFSETS = "offsets"
    """A snapshot of the group's offset. It shows that a message was passed, not when, by whom, or with what result."""
    NONE = "none"
    """No source."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a broker's log, with the columns of `messages`.

    Attributes:
        broker: The store's name; with `physical_offset` the primary key.
        physical_offset: Bytes from the log's logical start.
        msg_id: The offset message id, as brokers print it; JMQ's own id.
        unique_key: The client's message id, which copies of a message share.
        keys: The business keys.
        tags: The message's tag.
        kind: As in `messages`: normal, delay, retry, dlq, half, op, trace, timer or system.
        topic: The topic in which the record is stored.
        origin_topic: The topic to which the message was sent.
        queue_id: The queue of `topic`.
        queue_offset: The record's number in its queue.
        born_at: The producer's clock.
        stored_at: The broker's clock.
        born_host: The producer, ip:port.
        store_host: The broker, ip:port.
        reconsume_times: Failed consumptions so far.
        producer_group: The producer's group; None if the record does not name it.
        body_size: Bytes of the stored body.
        properties: All properties.
        body: The decompressed body; None if it was not requested, or the lake does not have it.
        body_problem: Reason why a requested body is missing; None otherwise.
        matched: True if the question names this record: it has the key or the id. Other records are included because an
            edge leads to them, or for `related_by`.
        related_by: The property whose value this record shares with a matching one; None for other records. Only this
            value links the two.
    """

    broker: str
    physical_offset: int
    msg_id: str | None
    unique_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    kind: str
    topic: str
    origin_topic: str | None
    queue_id: int | None
    queue_offset: int | None
    born_at: datetime.datetime | None
    stored_at: datetime.datetime | None
    born_host: str | None
    store_host: str | None
    reconsume_times: int | None
    producer_group: str | None
    body_size: int | None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    body: bytes | None = None
    body_problem: str | None = None
    matched: bool = True
    related_by: str | None = None


@dataclass(frozen=True, slots=True)
class Consumption:
    """One attempt of a group to consume a message, from a trace or a consume record.

    Attributes:
        group: The consumer group.
        host: The client, ip or ip:port; None if not known.
        attempt: 1 for the first time, 2 for the first retry, …; None if not known.
        cost_ms: Duration; None if only the start is known.
        succeeded: None if only the start is known.
        outcome: Result from the client, such as success, time-out, exception, returned null or failed; None if not
            known.
    """

    group: str
    host: str | None = None
    attempt: int | None = None
    cost_ms: int | None = None
    succeeded: bool | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class MissingRecord:
    """A record that an edge refers to and the lake does not have, with the reason.

    Attributes:
        reason: Reason, as in the table `edges`.
        text: The reason in words.
        name: Known data, such as a message id or a place; None if there are none.
    """

    reason: str
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step in a message history: a record, a consumption, or a record that the lake does not have.

    Attributes:
        id: Unique in the story and always the same: `broker:physical_offset` for a record.
        kind: Kind, for a colour or a shape.
        at: Time, by the broker's clock for a record, else by the client's; None if not known.
        lane: Topic of a record, or group of a consumption; for a missing end the topic if known, else empty.
        title: Short title: `sent to orders`, `consumed by billing`.
        text: Sentence with further details.
        record: The record; None for other steps.
        consumption: The consumption; None for other steps.
        missing: Reason why the end is not in the lake; None for other steps.
    """

    id: str
    kind: StepKind
    at: datetime.datetime | None
    lane: str
    title: str
    text: str
    record: Record | None = None
    consumption: Consumption | None = None
    missing: MissingRecord | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Connection from one step of a message history to a later one.

    Attributes:
        kind: Kind, as in the table `edges`.
        source: The id of the earlier step.
        target: The id of the later step.
        gap: Time from `source` to `target`, negative if clocks differ; None if a time is not known.
        text: In words: `delivered after level 5`, `third try`.
        joined_by: Value that the two have in common, such as UNIQ_KEY or ORIGIN_MESSAGE_ID; None if not known.
    """

    kind: str
    source: str
    target: str
    gap: datetime.timedelta | None
    text: str
    joined_by: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of a message, in one group or as a whole, with the evidence for it.

    Attributes:
        step: Id of its step: the newest one of the message.
        state: The state.
        text: A sentence: `consumed by billing at the third try, 4.2 s after it was sent`.
        proof: Source of the state.
        group: The consumer group; None for all groups.
        at: Time since which the state holds, or due time; None if not known.
    """

    step: str
    state: OutcomeState
    text: str
    proof: Evidence
    group: str | None = None
    at: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A line of a message history shown as a tree: a step, its depth, and the edge that led to it.

    Attributes:
        depth: 0 for a step without a predecessor.
        step: The step.
        edge: The edge from the step above; None at depth 0.
        gap: Time since the step above or, at depth 0, since the previous tree; None for the first.
        again: True if the step was shown before by another edge; its successors are shown there.
        last: True if no further branch of the same step follows.
        cut: Number of edges from here that are not shown because of the depth.
    """

    depth: int
    step: Step
    edge: Edge | None
    gap: datetime.timedelta | None
    again: bool
    last: bool
    cut: int


@dataclass(frozen=True, slots=True)
class Story:
    """History of the messages with a key, an id or an offset, as a graph of steps and edges.

    Attributes:
        asked: The question in words: `key order-4711`.
        as_of: Store time of the newest archived record of the stores in the story; None for an empty lake.
        steps: Steps in time order; those without a time follow their cause.
        edges: In the order of their targets.
        outcomes: In the order of the steps.
        cautions: Sentences on what was not searched, is not known, or was left out.
        not_shown: Number of matching records that are left out because of a limit.
        missing: Sentences on messages that the lake has lost and that may belong to the story.
    """

    asked: str
    as_of: datetime.datetime | None
    steps: Sequence[Step]
    edges: Sequence[Edge]
    outcomes: Sequence[Outcome]
    cautions: Sequence[str] = ()
    not_shown: int = 0
    missing: Sequence[str] = ()

    @property
    def records(self) -> list[Record]:
        """Records of the message history in time order."""
        return [step.record for step in self.steps if step.record is not None]

    def step(self, step_id: str) -> Step:
        """Return the step with the given id.

        Raises:
            KeyError: if the story has no such step.
        """
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def iterate_tree_lines(self, max_depth: int | None = None) -> Iterator[TreeLine]:
        """Yield the steps as lines of a tree in time order, each before the steps that it led to.

        A step with several incoming edges is shown below the first of them, and as `again` below the others. If edges
        form a cycle, the tree starts with its earliest step.

        Args:
            max_depth: Number of edges to follow from the top; None for all.
        """
        yield from _StoryWalk(self).iterate_branches(max_depth)


class _StoryWalk:
    """Depth-first walk over a message history, without recursion, as a chain may be longer than Python's stack."""

    def __init__(self, story: Story) -> None:
        self._order = {step.id: number for number, step in enumerate(story.steps)}
        self._steps = story.steps
        self._by_source: dict[str, list[Edge]] = {}
        for edge in story.edges:
            self._by_source.setdefault(edge.source, []).append(edge)
        for edges in self._by_source.values():
            edges.sort(key=lambda edge: self._order[edge.target])
        self._led_to = {edge.target for edge in story.edges if edge.source != edge.target}
        self._seen: set[str] = set()
        self._cut: set[str] = set()

    def iterate_branches(self, max_depth: int | None) -> Iterator[TreeLine]:
        roots = [step for step in self._steps if step.id not in self._led_to]
        before: datetime.datetime | None = None
        for step in [*roots, *self._steps]:  # a cycle has no root, so its earliest step becomes one
            if step.id in self._seen or step.id in self._cut:
                continue
            gap = step.at - before if step.at is not None and before is not None else None
            before = step.at or before
            yield from self._walk_from(step, gap, max_depth)

    def _walk_from(
        self, root: Step, time_since_previous: datetime.timedelta | None, max_depth: int | None
    ) -> Iterator[TreeLine]:
        waiting: list[tuple[int, Step, Edge | None, datetime.timedelta | None, bool]] = [
            (0, root, None, time_since_previous, True)
        ]
        while waiting:
            level, step, edge, since, last = waiting.pop()
            again = step.id in self._seen
            self._seen.add(step.id)
            edges = [] if again else self._by_source.get(step.id, [])
            cut = len(edges) if max_depth is not None and level >= max_depth else 0
            if cut:
                self._hide_successors(step.id)
                edges = []
            yield TreeLine(level, step, edge, since, again, last, cut)
            for number, after in enumerate(reversed(edges)):
                target = self._steps[self._order[after.target]]
                waiting.append((level + 1, target, after, after.gap, number == 0))

    def _hide_successors(self, step_id: str) -> None:
        """Mark the successors of a step as hidden, so that a cycle among them does not become a tree of its own."""
        waiting = [step_id]
        while waiting:
            for edge in self._by_source.get(waiting.pop(), []):
                if edge.target not in self._cut:
                    self._cut.add(edge.target)
                    waiting.append(edge.target)
