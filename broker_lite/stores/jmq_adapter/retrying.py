"""Failed messages over RocketMQ's protocol: what consumers send back comes again after 3^n seconds, or is dead.

JMQ keeps failures in its retry store and has no topics for them. Consumers of RocketMQ know nothing but topics: a
group's retries are found under `%RETRY%group`, its dead letters under `%DLQ%group`, each in one queue, which is a view
of the retry store. Nobody can send to them.
"""

from __future__ import annotations

from commitlake.broker_lite.delivery.errors import SendBackError
from commitlake.broker_lite.stores.jmq import JournalStore, Retry, RetryStatus, RetryStore
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, RetryQueues, retry_queue_of, topic_of
from commitlake.schemas.layouts.jmq.consumption import Consumption, Outcome
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host

ENTERED_AT_ONCE = 500
_OUTCOMES = {RetryStatus.RETRYING: Outcome.FAILED, RetryStatus.DEAD: Outcome.GIVEN_UP}


class Retrying:
    """The failures of all groups; the broker's thread uses it.

    Attributes:
        queues: the retry store as queues.
        arrived: topic and number of the queues that have got messages since somebody emptied it.
    """

    def __init__(self, journal: JournalStore) -> None:
        """Open the retry store beside a journal; close it before the journal."""
        self._journal = journal
        self._retries = RetryStore(journal.path, journal.options, journal.clock)
        self.queues = RetryQueues(self._retries)
        self.arrived: set[tuple[str, int]] = set()

    def close(self) -> None:
        """Give the retry store's file back."""
        self._retries.close()

    def forget_expired(self) -> None:
        """Remove what came to an end of messages that the journal has no more."""
        self._retries.forget(self._journal.min_journal_offset)

    def bounds(self, topic: str, queue_id: int) -> range:
        """The offsets of a retry or dead letter queue, of which each topic has one."""
        queue = retry_queue_of(topic)
        return self.queues.bounds(queue) if queue is not None and queue_id == 0 else range(0)

    def find(self, topic: str, queue_id: int, queue_offset: int) -> Retry | None:
        """The retry or dead letter at an offset."""
        return next(iter(self.get(topic, queue_id, queue_offset, 1)), None)

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int) -> list[Retry]:
        """Retries or dead letters from an offset on."""
        queue = retry_queue_of(topic)
        return self.queues.get(queue, queue_offset, max_messages) if queue is not None and queue_id == 0 else []

    def dead_letters(self, app: str, numbers: range) -> list[Retry]:
        """The dead letters of a group with these offsets."""
        found = self.queues.get(RetryQueue(app, RetryStatus.DEAD), numbers.start, len(numbers))
        return [letter for letter in found if letter.place in numbers]

    def enter_due(self, now_ms: int, limit: int = ENTERED_AT_ONCE) -> int:
        """Enter what is due into the queues; gives how many messages that were."""
        entered = self.queues.enter_due(now_ms, limit)
        self.arrived.update((topic_of(queue), 0) for queue in entered)
        return sum(entered.values())

    def send_back(self, group: str, journal_offset: int, max_attempts: int, client: Host) -> RetryStatus | None:
        """Take back a message that a group has failed on.

        Args:
            group: the consumer's.
            journal_offset: of the message, which may be a retry.
            max_attempts: how many retries it has at most.
            client: the consumer.

        Returns:
            What becomes of it; None where this was said before: its retry waits already, or it is dead. Who wants
            the dead to come again revives them.

        Raises:
            SendBackError: if there is no such message.
        """
        reason = f"sent back by {client}"
        known = self.queues.find(group, journal_offset)
        if known is not None and known.status is RetryStatus.DEAD:
            return None
        if known is not None and known.status is RetryStatus.RETRYING:
            if known.place is None:
                return None
            status = self._retries.fail(known, reason, max_attempts)
            self.record(known, group, _OUTCOMES[status], known.attempt, client)
        else:
            status = self._first_failure(group, self._message_at(journal_offset), reason, max_attempts, client)
        if status is RetryStatus.DEAD:
            self.enter_due(0)
        return status

    def _message_at(self, journal_offset: int) -> JournalMessage:
        message = self._journal.get_at(journal_offset)
        if message is None:
            raise SendBackError(f"expected a message at {journal_offset} to send back, found none")
        return message

    def _first_failure(
        self, group: str, message: JournalMessage, reason: str, max_attempts: int, client: Host
    ) -> RetryStatus:
        record = self._journal.record_at(message.journal_offset, message.size)
        self._retries.add(group, [(message, record, reason)])
        retry = self.queues.find(group, message.journal_offset)
        assert retry is not None, "it was added just now"
        status = RetryStatus.RETRYING
        if min(max_attempts, self._journal.options.retry_max_attempts) <= 0:
            status = RetryStatus.DEAD
            self._retries.give_up([retry.id])
        self.record(retry, group, _OUTCOMES[status], 1, client)
        return status

    def acknowledge(self, group: str, queue_offset: int, client: Host) -> None:
        """Note that a group has consumed all of its retries before an offset that it has not sent back."""
        for retry in self.queues.acknowledge(group, queue_offset):
            self.record(retry, group, Outcome.CONSUMED, retry.attempt, client)

    def record(self, retry: Retry, group: str, outcome: Outcome, attempt: int, client: Host) -> None:
        """Record what became of one delivery."""
        message = retry.message
        self._journal.log_consumption(
            [
                Consumption(
                    message.topic, message.queue_id, message.queue_offset, message.journal_offset, group, outcome,
                    self._journal.clock(), attempt, client,
                )
            ]
        )  # fmt: skip

    def drop(self, topic: str) -> None:
        """Let the retries or dead letters that a topic shows not come again."""
        queue = retry_queue_of(topic)
        if queue is not None:
            self.queues.drop(queue)
