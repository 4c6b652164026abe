"""Consumption of a store's messages: consumers take batches of messages, and report the results.

    consuming = Consuming(store)
    batch = consuming.take_batch("orders", "mail", 0, client, 10)
    consuming.finish_batch(batch, {batch.messages[3].queue_offset: "no such address"})
    for retry in consuming.take_retries("orders", "mail", 10):
        consuming.finish_retry(retry, client, None)

A consumer that takes a batch has exclusive use of the queue until it finishes the batch, or for `lock_timeout_ms`; then
another consumer of the application gets the same messages. A failed message goes to the retry store, and consumption
continues without it. Retry store, consume records and position are written in this order, so that after a crash in
between messages are delivered again, but never lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.jmq.retry_store import Retry, RetryStatus, RetryStore
from commitlake.broker_lite.stores.jmq.store import JournalStore
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.hosts import Host

_OUTCOMES = {
    RetryStatus.SUCCEEDED: DeliveryOutcome.CONSUMED,
    RetryStatus.RETRYING: DeliveryOutcome.FAILED,
    RetryStatus.DEAD: DeliveryOutcome.GIVEN_UP,
}


class Batch(NamedTuple):
    """Messages of a queue that a consumer has taken, and must report as consumed or failed.

    Attributes:
        place: application and queue of the batch.
        client: address of the consumer.
        messages: messages in order of their queue offsets.
        end: queue offset after the last message.
        deadline: time after which another consumer may take them, ms.
    """

    place: ConsumedQueue
    client: Host
    messages: list[JournalMessage]
    end: int
    deadline: int


class Consuming:
    """Consumption of messages in batches; several threads may use it.

    Attributes:
        retries: retries and dead letters.
    """

    def __init__(self, store: JournalStore) -> None:
        """Continue at the positions that the store has saved; close this object before the store."""
        self._store = store
        self.retries = RetryStore(store.path, store.options, store.clock)
        self._guard = threading.RLock()
        self._batches: dict[ConsumedQueue, Batch] = {}
        self._retries_out: dict[int, int] = {}

    def close(self) -> None:
        """Close the retry store."""
        self.retries.close()

    def take_batch(self, topic: str, app: str, queue_id: int, client: Host, max_messages: int) -> Batch | None:
        """Take the next messages of a queue; return None if there are none, or another consumer has the queue.

        Raises:
            StoreFilesError: if a record is damaged; use smaller batches and `set_offset` to skip it.
            UnserializableError: if the application or the address do not fit in consume records.
        """
        place, now = ConsumedQueue(topic, app, queue_id), self._store.clock()
        _check_consumer(topic, app, client)
        with self._guard:
            held = self._batches.get(place)
            if held is not None and now < held.deadline:
                return None
            while True:
                start = max(self._store.offsets.get_or_queue_start(place).ack, self._store.min_offset(topic, queue_id))
                found = self._store.get(topic, queue_id, start, max_messages)
                if found.next_offset <= start:
                    return None
                if found.messages:
                    break
                # All of these messages are lost, so there is nothing to deliver.
                self._store.offsets.acknowledge(place, found.next_offset)
            batch = Batch(place, client, found.messages, found.next_offset, now + self._store.options.lock_timeout_ms)
            self._batches[place] = batch
            self._store.offsets.mark_delivered(place, batch.end)
            return batch

    def finish_batch(self, batch: Batch, failures: Mapping[int, str] | None = None) -> None:
        """Report which messages of a batch were consumed and which failed.

        Args:
            batch: batch as it was taken.
            failures: reasons of failed messages by queue offset; all other messages were consumed.

        Raises:
            StoreError: if the batch no longer belongs to the consumer; nothing was recorded.
        """
        failures = failures or {}
        with self._guard:
            self._check_batch_is_valid(batch)
            failed = [message for message in batch.messages if message.queue_offset in failures]
            records = [self._store.record_at(message.journal_offset, message.size) for message in failed]
            reasons = [failures[message.queue_offset] for message in failed]
            # In this order, see the module: a crash in between repeats deliveries, and loses none.
            self.retries.add(batch.place.app, list(zip(failed, records, reasons, strict=True)))
            self._store.log_consumption(
                [self._make_first_consumption(batch, message, failures) for message in batch.messages]
            )
            self._store.offsets.acknowledge(batch.place, batch.end)
            del self._batches[batch.place]

    def _make_first_consumption(
        self, batch: Batch, message: JournalMessage, failures: Mapping[int, str]
    ) -> Consumption:
        outcome = DeliveryOutcome.FAILED if message.queue_offset in failures else DeliveryOutcome.CONSUMED
        return _make_consumption(message, batch.place.app, outcome, self._store.clock(), 1, batch.client)

    def _check_batch_is_valid(self, batch: Batch) -> None:
        if self._batches.get(batch.place) is not batch:
            what = f"the batch up to message {batch.end} of {batch.place}"
            raise StoreError(f"{what} no longer belongs to the consumer {batch.client}: its time has expired")

    def set_offset(self, topic: str, app: str, queue_id: int, queue_offset: int) -> None:
        """Set an application's offset in a queue, backward or forward; its unfinished batch becomes invalid."""
        place = ConsumedQueue(topic, app, queue_id)
        with self._guard:
            self._batches.pop(place, None)
            self._store.offsets.set_offset(place, queue_offset)

    def take_retries(self, topic: str, app: str, max_messages: int) -> list[Retry]:
        """Take failed messages whose retry is due; no other consumer gets them for `lock_timeout_ms`."""
        now = self._store.clock()
        with self._guard:
            self._retries_out = {number: end for number, end in self._retries_out.items() if now < end}
            # As many more as are taken already, which are due, too.
            due = self.retries.due_retries(topic, app, max_messages + len(self._retries_out))
            free = [retry for retry in due if retry.id not in self._retries_out][:max_messages]
            self._retries_out.update({retry.id: now + self._store.options.lock_timeout_ms for retry in free})
            return free

    def finish_retry(self, retry: Retry, client: Host, failure: str | None) -> RetryStatus:
        """Report the result of a retry.

        Args:
            retry: retry as it was taken.
            failure: reason of the failure; None if the message was consumed.

        Raises:
            StoreError: if the retry no longer belongs to the consumer; nothing was recorded.
            UnserializableError: if the address does not fit in consume records.
        """
        _check_consumer(retry.message.topic, retry.app, client)
        with self._guard:
            if self._retries_out.get(retry.id, 0) <= self._store.clock() or self.retries.get(retry.id) != retry:
                raise StoreError(f"retry {retry.id} no longer belongs to the consumer {client}: its time has expired")
            if failure is None:
                status = RetryStatus.SUCCEEDED
                self.retries.mark_consumed(retry.id)
            else:
                status = self.retries.record_failure(retry, failure)
            outcome, now = _OUTCOMES[status], self._store.clock()
            self._store.log_consumption(
                [_make_consumption(retry.message, retry.app, outcome, now, retry.attempt, client)]
            )
            del self._retries_out[retry.id]
        return status


def _check_consumer(topic: str, app: str, client: Host) -> None:
    """Raise an error if a consumer's names or address cannot be written into a consume record."""
    serialize_consumption(Consumption(topic, 0, 0, 0, app, DeliveryOutcome.CONSUMED, 0, 1, client))


def _make_consumption(
    message: JournalMessage, app: str, outcome: DeliveryOutcome, now_ms: int, attempt: int, client: Host
) -> Consumption:
    return Consumption(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        journal_offset=message.journal_offset,
        app=app,
        outcome=outcome,
        consume_timestamp=now_ms,
        attempt=attempt,
        client_address=client,
    )
