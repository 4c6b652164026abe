"""Which queue a message goes to.

An ordered message goes where the hash of its business id says, so that all messages of one id are in one queue, in
order. Any other goes to a queue by chance, by the weights of the topic's queues where it has some. When a topic gets
another number of queues, ids change their queues.

JMQ's clients choose like this; which hash they use is not published. Here it is Java's of a string, its sign cleared.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage
from commitlake.schemas.layouts.rocketmq.hashing import java_hash

_POSITIVE = 0x7FFFFFFF


def ordered_queue(business_id: str, queue_count: int) -> int:
    """The queue of an ordered message."""
    return (java_hash(business_id) & _POSITIVE) % queue_count


class Routing:
    """Chooses queues; several threads may use it."""

    def __init__(
        self,
        options: JournalOptions,
        chance: random.Random | None = None,
        queue_count_of: Callable[[str], int] | None = None,
    ) -> None:
        """Choose by a store's options.

        Args:
            options: the store's.
            chance: what decides where nothing else does.
            queue_count_of: how many queues a topic has, where the options do not say it.
        """
        self._queue_count_of = queue_count_of or options.queue_count_of
        self._chance = chance or random.Random()  # noqa: S311 (no secret)
        self._cumulated = {topic: tuple(accumulate(weights)) for topic, weights in options.queue_weights.items()}

    def queue_of(self, message: NewJournalMessage, wanted: int | None = None) -> int:
        """The queue that a message goes to.

        Args:
            message: the message.
            wanted: the queue that its producer has chosen, if it has.

        Raises:
            MessageRefusedError: if an ordered message has no business id, or belongs into another queue than the wanted
                one; or if the topic has no such queue.
        """
        count = self._queue_count_of(message.topic)
        if wanted is not None and not 0 <= wanted < count:
            raise MessageRefusedError(f"queue_id: expected 0 to {count - 1}, found {wanted}")
        if message.is_ordered:
            return self._ordered(message, count, wanted)
        if wanted is not None:
            return wanted
        cumulated = self._cumulated.get(message.topic)
        if cumulated is None:
            return int(self._chance.random() * count)
        return bisect_right(cumulated, self._chance.random() * cumulated[-1])

    @staticmethod
    def _ordered(message: NewJournalMessage, count: int, wanted: int | None) -> int:
        if not message.business_id:
            raise MessageRefusedError("business_id: expected one in an ordered message, found none")
        queue_id = ordered_queue(message.business_id, count)
        if wanted not in (None, queue_id):
            raise MessageRefusedError(
                f"queue_id: expected {queue_id} for ordered messages of {message.business_id!r}, found {wanted}"
            )
        return queue_id
