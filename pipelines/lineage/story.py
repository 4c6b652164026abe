"""A story: what happened to the messages of one business key, message id or offset, as plain objects.

A story is a graph. Its nodes are *steps*: a stored record, one consumption by a group, or an end that the lake does not
have. Its *edges* are what a broker or a client did, in the direction of time. *Outcomes* say in words how it stands
now: one for each message and each group that is known to want it.

    Story
      steps      in time order; Step.record, Step.consumption or Step.missing says more
      edges      source and target are ids of steps
      outcomes   one for each message, or for each message and group
      cautions   sentences: what was not looked at, is not known, or was left out

`Story.branches` walks the graph as a tree, which a terminal, a page and a diagram can draw alike. The objects are
frozen, refer to each other by id, and hold no handle of a table or a file: they can be compared, pickled and kept.

All texts come from brokers and their clients, so they may hold anything: control characters, markup, megabytes. Whoever
shows them has to escape them for the place where they are shown.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class StepKind(StrEnum):
    """What a step is: the kind of its record, as in `messages.kind`, or one of the last two."""

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
    """How it stands with a message, or with a message in one group."""

    CONSUMED = "consumed"
    """The group consumed it: a trace, or a consume record, says so."""
    PASSED = "passed"
    """The group's offset is beyond it. The group has acknowledged it or stepped over it; which, nothing tells."""
    NOT_CONSUMED = "not_consumed"
    """The group's offset has not passed it yet."""
    WAITING = "waiting"
    """The broker holds it back: a delay level, a timer, or the delay before a retry."""
    OVERDUE = "overdue"
    """The broker still held it back when the log was read, after it was due."""
    PREPARED = "prepared"
    """A half message that was neither committed nor rolled back so far."""
    ROLLED_BACK = "rolled_back"
    """The transaction was rolled back: no group gets it."""
    CANCELLED = "cancelled"
    """No group gets it: its producer called a timer back, or the broker gave a half message up."""
    DEAD = "dead"
    """A dead letter, which nobody has sent again."""
    REDRIVEN = "redriven"
    """A dead letter that was sent again; the new message has its own outcomes."""
    FAILED = "failed"
    """A consumption failed, and no later record of it is in the lake."""
    UNKNOWN = "unknown"
    """Nothing in the lake tells."""


class Proof(StrEnum):
    """What an outcome rests on, the strongest first."""

    TRACE = "trace"
    """Records that the client wrote of each consumption; for JMQ, the broker's consume records."""
    RECORDS = "records"
    """Records that the broker stored: copies, dead letters, marks of transactions."""
    OFFSETS = "offsets"
    """A snapshot of the group's offset. It tells that a message was passed, not when, by whom, or with what result."""
    NONE = "none"
    """Nothing."""


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
        producer_group: The producer's group; None where the record does not name it.
        body_size: Bytes of the stored body.
        properties: All properties.
        body: The body, decompressed; None where it was not asked for, or the lake does not have it.
        body_problem: Why there is no body although it was asked for; None otherwise.
        matched: True where the question named this record: it has the key or the id. Other records are here because an
            edge leads to them, or for `related_by`.
        related_by: The property whose value this record shares with one that matched; None for the others. Nothing
            else joins the two.
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
    """One attempt of a group to consume a message, as a trace or a consume record tells it.

    Attributes:
        group: The consumer group.
        host: The client, ip or ip:port; None where it is not told.
        attempt: 1 for the first time, 2 for the first retry, …; None where it is not told.
        cost_ms: How long it took; None where only its beginning is told.
        succeeded: None where only its beginning is told.
        outcome: What the client said, such as success, time-out, exception, returned null or failed; None where it is
            not told.
    """

    group: str
    host: str | None = None
    attempt: int | None = None
    cost_ms: int | None = None
    succeeded: bool | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """An end of an edge that the lake does not have.

    Attributes:
        reason: The reason as the table `edges` has it.
        text: The reason in words.
        name: What is known of it, such as a message id or a place; None where nothing is.
    """

    reason: str
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a story.

    Attributes:
        id: Unique in the story, and the same each time: `broker:physical_offset` of a record.
        kind: What it is, for a colour or a shape.
        at: When it happened, by the broker's clock for a record, else by the client's; None where nobody knows.
        lane: The topic of a record, or the group of a consumption; of a missing end what is known, else an empty text.
        title: A few words: `sent to orders`, `consumed by billing`.
        text: A sentence with what is worth knowing.
        record: The record; None for another kind of step.
        consumption: The consumption; None for another kind of step.
        missing: Why the end is not in the lake; None for another kind of step.
    """

    id: str
    kind: StepKind
    at: datetime.datetime | None
    lane: str
    title: str
    text: str
    record: Record | None = None
    consumption: Consumption | None = None
    missing: Missing | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """What led from one step to another.

    Attributes:
        kind: As in the table `edges`.
        source: The id of the earlier step.
        target: The id of the later step.
        gap: The time from `source` to `target`, below zero where clocks differ; None where a time is not known.
        text: In words: `delivered after level 5`, `third try`.
        joined_by: What the two have in common, such as UNIQ_KEY or ORIGIN_MESSAGE_ID; None where nothing says it.
    """

    kind: str
    source: str
    target: str
    gap: datetime.timedelta | None
    text: str
    joined_by: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it stands with a message, in one group or in all.

    Attributes:
        step: The id of the step that it is about: the newest one of the message.
        state: How it stands.
        text: A sentence: `consumed by billing at the third try, 4.2 s after it was sent`.
        proof: What it rests on.
        group: The consumer group; None where it holds for all groups.
        at: Since when, or when it is due; None where nobody knows.
    """

    step: str
    state: OutcomeState
    text: str
    proof: Proof
    group: str | None = None
    at: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A step as a tree shows it.

    Attributes:
        depth: 0 for a message that nothing led to.
        step: The step.
        edge: The edge by which the tree came here; None at depth 0.
        gap: The time since the step above, or, at depth 0, since the tree before; None for the first.
        again: True where the step was shown before, by another edge: what follows it is shown there.
        last: True where no other branch of the same step follows.
        cut: How many edges from here are not shown, because they are too deep.
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
    """What happened to the messages of a key, an id or an offset.

    Attributes:
        asked: The question in words: `key order-4711`.
        as_of: Until when the lake knows: the newest record of the stores that are in the story; None for an empty lake.
        steps: In time order; those without a time stand after what led to them.
        edges: In the order of their targets.
        outcomes: In the order of the steps.
        cautions: What was not looked at, is not known, or was left out, a sentence each.
        not_shown: How many records match the question and are not in the story, because there are too many.
    """

    asked: str
    as_of: datetime.datetime | None
    steps: Sequence[Step]
    edges: Sequence[Edge]
    outcomes: Sequence[Outcome]
    cautions: Sequence[str] = ()
    not_shown: int = 0

    @property
    def records(self) -> list[Record]:
        """The records, in time order."""
        return [step.record for step in self.steps if step.record is not None]

    def step(self, step_id: str) -> Step:
        """Return a step by its id.

        Raises:
            KeyError: if the story has no such step.
        """
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def branches(self, depth: int | None = None) -> Iterator[Branch]:
        """Yield the steps as a tree, each above what it led to, in time order.

        A step that several edges lead to is shown below the first of them, and as `again` below the others. Where
        edges go in a circle, the tree begins with the earliest step of it.

        Args:
            depth: How many edges to follow from the top; None for all.
        """
        yield from _Walk(self).branches(depth)


class _Walk:
    """A depth-first walk over a story, without recursion: a chain may be longer than Python's stack."""

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

    def branches(self, depth: int | None) -> Iterator[Branch]:
        roots = [step for step in self._steps if step.id not in self._led_to]
        before: datetime.datetime | None = None
        for step in [*roots, *self._steps]:  # a circle has no root: its earliest step becomes one
            if step.id in self._seen or step.id in self._cut:
                continue
            gap = step.at - before if step.at is not None and before is not None else None
            before = step.at or before
            yield from self._from(step, gap, depth)

    def _from(self, root: Step, gap: datetime.timedelta | None, depth: int | None) -> Iterator[Branch]:
        waiting: list[tuple[int, Step, Edge | None, datetime.timedelta | None, bool]] = [(0, root, None, gap, True)]
        while waiting:
            level, step, edge, since, last = waiting.pop()
            again = step.id in self._seen
            self._seen.add(step.id)
            edges = [] if again else self._by_source.get(step.id, [])
            cut = len(edges) if depth is not None and level >= depth else 0
            if cut:
                self._hide(step.id)
                edges = []
            yield Branch(level, step, edge, since, again, last, cut)
            for number, after in enumerate(reversed(edges)):
                target = self._steps[self._order[after.target]]
                waiting.append((level + 1, target, after, after.gap, number == 0))

    def _hide(self, step_id: str) -> None:
        """Remember what follows a step, so that a circle in it does not become a tree of its own."""
        waiting = [step_id]
        while waiting:
            for edge in self._by_source.get(waiting.pop(), []):
                if edge.target not in self._cut:
                    self._cut.add(edge.target)
                    waiting.append(edge.target)
