"""Computes how far a group can be moved in a queue, past messages that a replay sent and past no others.

A group has one offset in a queue. To skip a message, it must skip all messages before it that it has not consumed. So
it is moved past the next messages of the replay, and stops at another message that it wants:

    offsets      5 6 7   8   9 10 11
    of           R R R   X   R  R  R        the group is at 5 and is moved to 8; moved to 12, it would lose X

Once it has consumed X, it can be moved past the rest. Messages that the group's filter leaves out do not stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.pipelines.lag.group_filter import GroupFilter
from commitlake.pipelines.replay.sent_runs import Run
from commitlake.pipelines.replay.stamping import REPLAY_ID
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.sql92 import compile_sql92

MAX_READ = 10_000
"""Messages between those of a replay that are read, for one queue and group. If there are more, they only count."""
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Others:
    """Messages between two runs of the replay's messages, which are not the replay's but which the group wants.

    Attributes:
        count: Number of messages.
        names: Texts that name the first of them.
    """

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Move of a group past a replay's messages in a queue.

    Attributes:
        to: The offset to set; the group's own if there is nothing to skip.
        stepped: Number of messages of the replay that it skips.
        consumed: Number of messages of the replay that it has passed before.
        left: Number of messages of the replay that remain after the move.
        skipped: Other messages that it loses by the move; none unless requested.
        others: Other messages that it would lose if it also skipped the rest.
    """

    to: int
    stepped: int
    consumed: int
    left: int
    skipped: Others
    others: Others


def step_over(
    runs: Sequence[Run], position: int, others_in: Callable[[int, int], Others], *, skips_others: bool
) -> GroupMove:
    """Return the move of a group past runs of messages.

    Args:
        runs: Runs of the replay, in ascending order.
        position: The next offset that the group consumes.
        others_in: Returns the wanted messages in a range of offsets that are not the replay's.
        skips_others: True to skip other messages as well, up to the end of the last run.
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
    return GroupMove(to, stepped, consumed, left, skipped, others)


def _sum(first: Others, second: Others) -> Others:
    return Others(first.count + second.count, (*first.names, *second.names)[:MAX_NAMED])


class OthersReader:
    """Reads messages of a target's queue that a group wants and that are not the replay's; for one queue and group.

    Args:
        puller: Reads the target.
        queue: The queue.
        replay_id: Id of the replay.
        wanted: The group's subscription to the topic.
    """

    def __init__(self, puller: Puller, queue: MessageQueue, replay_id: str, wanted: GroupFilter) -> None:
        self._puller, self._queue, self._replay_id = puller, queue, replay_id
        self._is_wanted = _test_of(wanted)
        self._left = MAX_READ

    def others_in(self, start: int, end: int) -> Others:
        """Return the other messages from `start` to before `end`.

        Raises:
            RocketMQError: The target does not answer.
        """
        if end - start > self._left:
            return Others(end - start, self._names(self._read(start, start + MAX_NAMED)))
        self._left -= end - start
        found = [message for message in self._read(start, end) if self._is_others(message)]
        return Others(len(found), self._names(found[:MAX_NAMED]))

    def is_replays(self, offset: int) -> bool:
        """Return whether the message at an offset is of the replay."""
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


def _test_of(wanted: GroupFilter) -> Callable[[Message], bool]:
    if wanted.expression_type == SQL92_EXPRESSION:
        condition = compile_sql92(wanted.expression)
        return lambda message: condition(message.properties)
    tags = wanted.tags
    return lambda message: tags is None or message.tags in tags
