"""Search in a queue for the first message stored at or after a time, with the same result for every broker version.

Brokers answer differently: 4.9 gives the message nearest to the time, any one of those in the same millisecond, and the
last one if all are older; 5.x gives the first at the time or later. So the messages around the answer are examined.
"""

from __future__ import annotations

from commitlake.connectors.rocketmq.puller import DEFAULT_BATCH, Puller
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.routes import MessageQueue

MAX_STEPS = 1000
"""Largest number of pulls in each direction, in case a clock was set back."""


def first_offset_at(puller: Puller, queue: MessageQueue, timestamp_ms: int, first_offset: int, end: int) -> int:
    """Return the offset of the first message stored at or after a time; `end` if there is none.

    If the broker's clock was set back, offsets are not in the order of times, and this is one of several possible ones.

    Args:
        puller: client for the broker.
        timestamp_ms: the time, ms since 1970.
        first_offset: the queue's first offset.
        end: the offset of the queue's next message.

    Raises:
        RocketMQError: if a request to the broker fails.
    """
    if first_offset >= end:
        return end
    found = min(max(puller.offsets.search_by_time(queue, timestamp_ms), first_offset), end)
    for _ in range(MAX_STEPS):
        if found <= first_offset:
            break
        begin = max(first_offset, found - DEFAULT_BATCH)
        earlier = _pull_range(puller, queue, begin, found)
        late = [message.queue_offset for message in earlier if message.store_timestamp >= timestamp_ms]
        if not late:
            break
        found = min(late)
        # A message before it is too early, so all messages further back are, too.
        if found > begin:
            break
    for _ in range(MAX_STEPS):
        if found >= end:
            break
        later = _pull_range(puller, queue, found, min(end, found + DEFAULT_BATCH))
        reached = [message.queue_offset for message in later if message.store_timestamp >= timestamp_ms]
        if reached or not later:
            return max(found, min(reached, default=found))
        found = later[-1].queue_offset + 1
    return min(found, end)


def _pull_range(puller: Puller, queue: MessageQueue, begin: int, end: int) -> list[Message]:
    """Return the messages of a small range, with as many pulls as needed."""
    found: list[Message] = []
    while begin < end:
        result = puller.pull(queue, begin, max_messages=min(DEFAULT_BATCH, end - begin))
        found += [message for message in result.messages if message.queue_offset < end]
        if result.next_offset <= begin or not result.messages:
            break
        begin = result.next_offset
    return found
