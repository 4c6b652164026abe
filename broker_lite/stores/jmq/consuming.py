"""What consumers do with a store: they take batches, and say what became of them.

    consuming = Consuming(store)
    batch = consuming.take("orders", "mail", 0, client, 10)
    consuming.finish(batch, {batch.messages[3].queue_offset: "no such address"})
    for retry in consuming.take_retries("orders", "mail", 10):
        consuming.finish_retry(retry, client, None)

A queue is one consumer's of an application from when it takes a batch until it has finished it, or for
`lock_timeout_ms`: then another gets the same messages. A message that failed goes to the retry store, and the others go
on without it. Retry store, consume records and position are written in this order: what a crash comes between is handed
out again, never lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.errors import StoreError
from commitlake.broker_lite.stores.jmq.retry import Retry, RetryStatus, RetryStore
from commitlake.broker_lite.stores.jmq.store import JournalStore
from commitlake.schemas.layouts.jmq.consumption import Consumption, Outcome, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.offsets import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.hosts import Host

_OUTCOMES = {
    RetryStatus.SUCCEEDED: Outcome.CONSUMED,
    RetryStatus.RETRYING: Outcome.FAILED,
    RetryStatus.DEAD: Outcome.GIVEN_UP,
}


class BatchLostError(StoreError):
    """A batch whose time was over, or that was finished before: another consumer has its messages, or had them."""


class Batch(NamedTuple):
    """Messages that a consumer has.

    Attributes:
        place: the application and its queue.
        client: the consumer's address.
        messages: in order of their queue offsets.
        end: the queue offset behind them.
        deadline: when another may get them, ms.
    """

    place: ConsumedQueue
    client: Host
    messages: list[JournalMessage]
    end: int
    deadline: int


class Consuming:
    """Hands messages out; several threads may use it.

    Attributes:
        retries: the messages that come again, and the dead letters.
    """

    def __init__(self, store: JournalStore) -> None:
        """Take up where the store's positions say; close it before the store."""
        self._store = store
        self.retries = RetryStore(store.path, store.options, store.clock)
        self._guard = threading.RLock()
        self._batches: dict[ConsumedQueue, Batch] = {}
        self._retries_out: dict[int, int] = {}

    def close(self) -> None:
        """Give the retry store's file back."""
        self.retries.close()

    def take(self, topic: str, app: str, queue_id: int, client: Host, max_messages: int) -> Batch | None:
        """The next messages of a queue; None where there are none, or another consumer has the queue.

        Raises:
            StoreFilesError: if one of the records is damaged; smaller batches, and `set_back`, go around it.
            UnserializableError: for an application or an address that consume records have no room for.
        """
        place, now = ConsumedQueue(topic, app, queue_id), self._store.clock()
        _check_consumer(topic, app, client)
        with self._guard:
            held = self._batches.get(place)
            if held is not None and now < held.deadline:
                return None
            start = max(self._store.offsets.get(place).ack, self._store.min_offset(topic, queue_id))
            found = self._store.get(topic, queue_id, start, max_messages)
            if found.next_offset <= start:
                return None
            batch = Batch(place, client, found.messages, found.next_offset, now + self._store.options.lock_timeout_ms)
            if not found.messages:
                # All of them are lost: nobody can tell us what became of them.
                self._store.offsets.acknowledge(place, found.next_offset)
                return self.take(topic, app, queue_id, client, max_messages)
            self._batches[place] = batch
            self._store.offsets.hand_out(place, batch.end)
            return batch

    def finish(self, batch: Batch, failures: Mapping[int, str] | None = None) -> None:
        """Say what became of a batch.

        Args:
            batch: as it was taken.
            failures: by queue offset, why these messages failed; all the others were consumed.

        Raises:
            BatchLostError: if the batch is not the consumer's any more; nothing was noted.
        """
        failures = failures or {}
        with self._guard:
            self._check(batch)
            failed = [message for message in batch.messages if message.queue_offset in failures]
            records = [self._store.record_at(message.journal_offset, message.size) for message in failed]
            reasons = [failures[message.queue_offset] for message in failed]
            self.retries.add(batch.place.app, list(zip(failed, records, reasons, strict=True)))
            self._store.log_consumption([self._first_delivery(batch, message, failures) for message in batch.messages])
            self._store.offsets.acknowledge(batch.place, batch.end)
            del self._batches[batch.place]

    def _first_delivery(self, batch: Batch, message: JournalMessage, failures: Mapping[int, str]) -> Consumption:
        outcome = Outcome.FAILED if message.queue_offset in failures else Outcome.CONSUMED
        return _consumption(message, batch.place.app, outcome, self._store.clock(), 1, batch.client)

    def _check(self, batch: Batch) -> None:
        if self._batches.get(batch.place) is not batch:
            what = f"the batch up to message {batch.end} of {batch.place}"
            raise BatchLostError(f"expected {what} to be with {batch.client}, found it gone")

    def give_back(self, batch: Batch) -> None:
        """Let another consumer have the messages at once.

        Raises:
            BatchLostError: if another has them already.
        """
        with self._guard:
            self._check(batch)
            del self._batches[batch.place]

    def set_back(self, topic: str, app: str, queue_id: int, queue_offset: int) -> None:
        """Let an application consume a queue from an offset on, again or leaving some out; who has a batch loses it."""
        place = ConsumedQueue(topic, app, queue_id)
        with self._guard:
            self._batches.pop(place, None)
            self._store.offsets.set_back(place, queue_offset)

    def take_retries(self, topic: str, app: str, max_messages: int) -> list[Retry]:
        """Failed messages whose time has come again; nobody else gets them for `lock_timeout_ms`."""
        now = self._store.clock()
        with self._guard:
            self._retries_out = {number: end for number, end in self._retries_out.items() if now < end}
            due = self.retries.due(topic, app, max_messages + len(self._retries_out))
            free = [retry for retry in due if retry.id not in self._retries_out][:max_messages]
            self._retries_out.update({retry.id: now + self._store.options.lock_timeout_ms for retry in free})
            return free

    def finish_retry(self, retry: Retry, client: Host, failure: str | None) -> RetryStatus:
        """Say what became of a retry.

        Args:
            retry: as it was taken.
            client: the consumer's address.
            failure: why it failed; None if it was consumed.

        Raises:
            BatchLostError: if it is not the consumer's any more; nothing was noted.
            UnserializableError: for an address that consume records have no room for.
        """
        _check_consumer(retry.message.topic, retry.app, client)
        with self._guard:
            if self._retries_out.get(retry.id, 0) <= self._store.clock() or self.retries.get(retry.id) != retry:
                raise BatchLostError(f"expected retry {retry.id} to be with {client}, found it gone")
            if failure is None:
                status = RetryStatus.SUCCEEDED
                self.retries.succeed(retry.id)
            else:
                status = self.retries.fail(retry, failure)
            outcome, now = _OUTCOMES[status], self._store.clock()
            self._store.log_consumption([_consumption(retry.message, retry.app, outcome, now, retry.attempt, client)])
            del self._retries_out[retry.id]
        return status


def _check_consumer(topic: str, app: str, client: Host) -> None:
    """Refuse at once what could not be logged later."""
    serialize_consumption(Consumption(topic, 0, 0, 0, app, Outcome.CONSUMED, 0, 1, client))


def _consumption(
    message: JournalMessage, app: str, outcome: Outcome, now: int, attempt: int, client: Host
) -> Consumption:
    return Consumption(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        journal_offset=message.journal_offset,
        app=app,
        outcome=outcome,
        consume_timestamp=now,
        attempt=attempt,
        client_address=client,
    )
