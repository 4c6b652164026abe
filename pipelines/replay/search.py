"""Finds messages of a replay in the target by the properties that a replay adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import MAX_EMPTY_ANSWERS
from commitlake.pipelines.replay.errors import TargetError
from commitlake.pipelines.replay.stamping import ORIGIN_BROKER, ORIGIN_PHYSICAL_OFFSET, REPLAY_ID
from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.segments import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.routes import MessageQueue

_MAX_OFFSET = 2**63 - 1
_MESSAGES = 256


class Origin(NamedTuple):
    """Location from which a message was sent again."""

    broker: str
    physical_offset: int


def find_sent(puller: Puller, queue: MessageQueue, start: int, replay_id: str) -> Iterator[tuple[Origin, Message]]:
    """Yield a replay's messages in a queue, from a queue offset to the queue's end.

    Args:
        queue: queue of the target.
        start: the first queue offset to read.

    Raises:
        TargetError: if the queue ends before `start`, so that it is no longer the same queue.
        RocketMQError: in the cases of `Puller.read`.
    """
    end = puller.max_offset(queue)
    if end < start:
        raise TargetError(
            f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at {end}, but ended at {start} "
            "before: the topic was deleted and created again, or the broker has lost messages. Plan a new replay"
        )
    empty = 0
    while start < end:
        result = puller.pull(queue, start, max_messages=_MESSAGES)
        empty = 0 if result.messages else empty + 1
        # A queue that cannot be read must not look like one without messages.
        if result.next_offset <= start or empty > MAX_EMPTY_ANSWERS:
            raise ProtocolError(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected messages from offset "
                f"{start} to {end}, found {result.status.name}"
            )
        for message in result.messages:
            origin = origin_of(message, replay_id)
            if origin is not None:
                if not 0 <= message.queue_offset <= MAX_QUEUE_OFFSET:
                    raise ProtocolError(
                        f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected a message at offset "
                        f"{start} or later, found one at {message.queue_offset}"
                    )
                yield origin, message
        start = result.next_offset


def origin_of(message: Message, replay_id: str) -> Origin | None:
    """Return the origin of a message; None if it is not of this replay."""
    properties = message.properties
    if properties.get(REPLAY_ID) != replay_id:
        return None
    offset = parse_int(properties.get(ORIGIN_PHYSICAL_OFFSET, ""), 0, _MAX_OFFSET)
    broker = properties.get(ORIGIN_BROKER)
    return None if offset is None or broker is None else Origin(broker, offset)
