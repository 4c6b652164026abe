"""Retries over RocketMQ's protocol: failed messages are delivered again after 3^n seconds, or are dead letters.

JMQ keeps failed messages in its retry store and has no topics for them, but RocketMQ's consumers need topics: a group's
retries are in `%RETRY%group`, its dead letters in `%DLQ%group`, each with one queue, which is a view of the retry
store. Clients cannot send to these topics.
"""

from __future__ import annotations

from commitlake.broker_lite.errors import SendBackError
from commitlake.broker_lite.stores.jmq import JournalStore, Retry, RetryStatus, RetryStore
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, RetryQueues, retry_queue_of, topic_of_retry_queue
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host

MAX_ENTERED = 500
_OUTCOMES = {RetryStatus.RETRYING: DeliveryOutcome.FAILED, RetryStatus.DEAD: DeliveryOutcome.GIVEN_UP}


class FailedMessages:
    """Failed messages of all groups; only the broker's thread uses it.

    Attributes:
        queues: queues of the retry store.
        arrived: (topic, queue id) pairs that have received messages since the set was last emptied.
    """

    def __init__(self, journal: JournalStore) -> None:
        """Open the retry store of a journal; close it before the journal."""
        self._journal = journal
        self._retries = RetryStore(journal.path, journal.options, journal.clock)
        self.queues = RetryQueues(self._retries)
        self.arrived: set[tuple[str, int]] = set()

    def close(self) -> None:
        """Close the retry store."""
        self._retries.close()

    def delete_expired_retries(self) -> None:
        """Remove finished retries of messages that are no longer in the journal."""
        self._retries.delete_finished_retries(self._journal.min_journal_offset)

    def queue_offset_range(self, topic: str, queue_id: int) -> range:
        """Return the offset range of a retry or dead-letter topic's queue 0; empty for other queue ids and topics."""
        queue = retry_queue_of(topic)
        return self.queues.queue_offset_range(queue) if queue is not None and queue_id == 0 else range(0)

    def find(self, topic: str, queue_id: int, queue_offset: int) -> Retry | None:
        """Return the retry or dead letter at an offset, or None."""
        return next(iter(self.get(topic, queue_id, queue_offset, 1)), None)

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int) -> list[Retry]:
        """Return retries or dead letters from an offset on."""
        queue = retry_queue_of(topic)
        return self.queues.get(queue, queue_offset, max_messages) if queue is not None and queue_id == 0 else []

    def dead_letters(self, app: str, offset_range: range) -> list[Retry]:
        """Return the dead letters of a group in a range of offsets."""
        found = self.queues.get(RetryQueue(app, RetryStatus.DEAD), offset_range.start, len(offset_range))
        return [letter for letter in found if letter.place in offset_range]

    def enqueue_due_retries(self, now_ms: int, limit: int = MAX_ENTERED) -> int:
        """Enter due retries and dead letters into their queues, and return their number."""
        entered = self.queues.enqueue_due_retries(now_ms, limit)
        self.arrived.update((topic_of_retry_queue(queue), 0) for queue in entered)
        return sum(entered.values())

    def send_back(self, group: str, journal_offset: int, max_attempts: int, client: Host) -> RetryStatus | None:
        """Schedule a retry of a message that a group failed to consume, or make it a dead letter.

        Args:
            group: group of the consumer.
            journal_offset: journal offset of the message, which may be a retry.
            max_attempts: maximum number of retries.

        Returns:
            New status of the message; None if the failure was already reported: its retry is waiting, or it is a dead
            letter, which only `revive` delivers again.

        Raises:
            SendBackError: if there is no message at the offset.
        """
        reason = f"sent back by {client}"
        known = self.queues.find(group, journal_offset)
        if known is not None and known.status is RetryStatus.DEAD:
            return None
        if known is not None and known.status is RetryStatus.RETRYING:
            # It waits for its retry already: the consumer has repeated its request.
            if known.place is None:
                return None
            status = self._retries.record_failure(known, reason, max_attempts)
            self.write_consume_record(known, group, _OUTCOMES[status], known.attempt, client)
        else:
            status = self._add_first_failure(group, self._message_at(journal_offset), reason, max_attempts, client)
        # Dead letters are available at once; at the time 0, no retry is due.
        if status is RetryStatus.DEAD:
            self.enqueue_due_retries(0)
        return status

    def _message_at(self, journal_offset: int) -> JournalMessage:
        message = self._journal.get_at(journal_offset)
        if message is None:
            raise SendBackError(f"there is no message to send back at journal offset {journal_offset}")
        return message

    def _add_first_failure(
        self, group: str, message: JournalMessage, reason: str, max_attempts: int, client: Host
    ) -> RetryStatus:
        record = self._journal.record_at(message.journal_offset, message.size)
        self._retries.add(group, [(message, record, reason)])
        retry = self.queues.find(group, message.journal_offset)
        assert retry is not None, "expected the retry that was just added"
        status = RetryStatus.RETRYING
        if min(max_attempts, self._journal.options.retry_max_attempts) <= 0:
            status = RetryStatus.DEAD
            self._retries.make_dead_letters([retry.id])
        self.write_consume_record(retry, group, _OUTCOMES[status], 1, client)
        return status

    def acknowledge(self, group: str, queue_offset: int, client: Host) -> None:
        """Record that a group has consumed its retries before a queue offset, except those that it has sent back."""
        for retry in self.queues.acknowledge(group, queue_offset):
            self.write_consume_record(retry, group, DeliveryOutcome.CONSUMED, retry.attempt, client)

    def write_consume_record(
        self, retry: Retry, group: str, outcome: DeliveryOutcome, attempt: int, client: Host
    ) -> None:
        """Write a consume record for one delivery of a retry."""
        message = retry.message
        self._journal.log_consumption(
            [
                Consumption(
                    message.topic, message.queue_id, message.queue_offset, message.journal_offset, group, outcome,
                    self._journal.clock(), attempt, client,
                )
            ]
        )  # fmt: skip

    def delete_topic_messages(self, topic: str) -> None:
        """Delete the messages of a retry or dead-letter topic."""
        queue = retry_queue_of(topic)
        if queue is not None:
            self.queues.drop(queue)
