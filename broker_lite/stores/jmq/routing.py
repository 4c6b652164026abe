"""Choice of a message's queue.

The queue of an ordered message is determined by the hash of its business id, so that all messages of one id are in one
queue, in order. Any other message goes to a random queue, by the weights of the topic's queues if it has some. If the
number of a topic's queues changes, ids move to other queues.

JMQ's clients work like this, but their hash is not published. Here it is Java's hash of a string, without its sign.
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
    """Return the queue of an ordered message."""
    return (java_hash(business_id) & _POSITIVE) % queue_count


class Routing:
    """Selector of queues; several threads may use it."""

    def __init__(
        self,
        options: JournalOptions,
        chance: random.Random | None = None,
        queue_count_of: Callable[[str], int] | None = None,
    ) -> None:
        """Use the queues of a store's options.

        Args:
            chance: source of randomness.
            queue_count_of: returns the number of queues of a topic, if the options do not determine it.
        """
        self._queue_count_of = queue_count_of or options.queue_count_of
        self._chance = chance or random.Random()  # noqa: S311 (not for security)
        self._cumulated = {topic: tuple(accumulate(weights)) for topic, weights in options.queue_weights.items()}

    def queue_of(self, message: NewJournalMessage, wanted: int | None = None) -> int:
        """Return the queue of a message.

        Args:
            wanted: queue that its producer chose; None if the store chooses.

        Raises:
            MessageRefusedError: if an ordered message has no business id, or belongs to another queue than the wanted
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
            raise MessageRefusedError("business_id: expected a business id in an ordered message, found none")
        queue_id = ordered_queue(message.business_id, count)
        if wanted not in (None, queue_id):
            raise MessageRefusedError(
                f"queue_id: expected {queue_id} for ordered messages of {message.business_id!r}, found {wanted}"
            )
        return queue_id
