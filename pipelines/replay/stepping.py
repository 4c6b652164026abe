"""How far a group can be moved on in a queue, so that it steps over what a replay sent there and over nothing else.

A group has one offset in a queue: to step over a message, it steps over all that it has not consumed before it. So it
is moved over the replay's messages that come next, and stops where somebody else's message stands that it wants:

    offsets      5 6 7   8   9 10 11
    of           R R R   X   R  R  R        the group is at 5: it is moved to 8; moved to 12, it would lose X

Once it has consumed X, it can be moved over the rest. Another's message that the group's filter leaves out is none
that it loses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.pipelines.lag.wanted import Wanted
from commitlake.pipelines.replay.sent_runs import Run
from commitlake.pipelines.replay.stamping import REPLAY_ID
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.sql92 import compile_sql92

MAX_READ = 10_000
"""Messages between those of a replay that are read, of one queue and group; of others, only the offsets count."""
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Others:
    """Messages between two runs that are not the replay's and that the group wants.

    Attributes:
        count: How many.
        names: The first of them.
    """

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """How a group steps over a replay's messages in a queue.

    Attributes:
        to: The offset to set; the group's own where there is nothing to step over.
        stepped: Messages of the replay that it steps over.
        consumed: Messages of the replay that it has passed before.
        left: Messages of the replay that are still to come after that.
        skipped: Others' messages that it loses by that; none unless that is asked for.
        others: Others' messages that it would lose if it stepped over the rest, too.
    """

    to: int
    stepped: int
    consumed: int
    left: int
    skipped: Others
    others: Others


def step_over(
    runs: Sequence[Run], position: int, others_in: Callable[[int, int], Others], *, skips_others: bool
) -> Step:
    """Return how a group steps over runs of messages.

    Args:
        runs: The replay's, rising.
        position: The next offset that the group consumes.
        others_in: Returns which messages of a range of offsets are others' and wanted.
        skips_others: Step over others' messages, too, up to the end of the last run.
    """
    to, stepped, left = position, 0, 0
    skipped, others = Others(), Others()
    end = position
    is_blocked = False
    for run in runs:
        if run.end <= position:
            continue
        between = others_in(end, run.start) if run.start > end else Others()
        end = run.end
        size = run.end - max(run.start, position)
        if between.count and not skips_others:
            is_blocked = True
        if is_blocked:
            others = _sum(others, between)
            left += size
        else:
            skipped = _sum(skipped, between)
            to, stepped = run.end, stepped + size
    consumed = sum(min(run.end, position) - run.start for run in runs if run.start < position)
    return Step(to, stepped, consumed, left, skipped, others)


def _sum(first: Others, second: Others) -> Others:
    return Others(first.count + second.count, (*first.names, *second.names)[:MAX_NAMED])


class OthersReader:
    """Reads which messages of a target's queue are others' and wanted by a group; for one queue and group.

    Args:
        puller: Reads the target.
        queue: The queue.
        replay_id: The replay's.
        wanted: What the group wants of the topic.
    """

    def __init__(self, puller: Puller, queue: MessageQueue, replay_id: str, wanted: Wanted) -> None:
        self._puller, self._queue, self._replay_id = puller, queue, replay_id
        self._is_wanted = _test_of(wanted)
        self._left = MAX_READ

    def others_in(self, start: int, end: int) -> Others:
        """Return the others' messages from an offset to before another.

        Raises:
            RocketMQError: The target does not answer.
        """
        if end - start > self._left:
            return Others(end - start, self._names(self._read(start, start + MAX_NAMED)))
        self._left -= end - start
        found = [message for message in self._read(start, end) if self._is_others(message)]
        return Others(len(found), self._names(found[:MAX_NAMED]))

    def is_replays(self, offset: int) -> bool:
        """Return whether the message at an offset is the replay's."""
        found = self._read(offset, offset + 1)
        return bool(found) and found[0].properties.get(REPLAY_ID) == self._replay_id

    def _is_others(self, message: Message) -> bool:
        return message.properties.get(REPLAY_ID) != self._replay_id and self._is_wanted(message)

    def _names(self, messages: Sequence[Message]) -> tuple[str, ...]:
        return tuple(
            f"offset {message.queue_offset}" + (f", keys {' '.join(message.keys)}" if message.keys else "")
            for message in messages
        )

    def _read(self, start: int, end: int) -> list[Message]:
        found = list(self._puller.read(self._queue, start, end))
        if found and found[-1].queue_offset >= end:
            raise ProtocolError(
                f"queue {self._queue.queue_id} of {self._queue.topic}: expected offsets before {end}, found "
                f"{found[-1].queue_offset}"
            )
        return found


def _test_of(wanted: Wanted) -> Callable[[Message], bool]:
    if wanted.expression_type == SQL92_EXPRESSION:
        condition = compile_sql92(wanted.expression)
        return lambda message: condition(message.properties)
    tags = wanted.tags
    return lambda message: tags is None or message.tags in tags
