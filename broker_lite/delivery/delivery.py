"""Delayed, retried and transactional messages of a store behind one interface.

No sockets, no threads, and no clock but the store's: the caller calls `deliver_due` when `next_due_ms` has passed.

    delivery = Delivery(store)
    delivery.send(message)                       stores it; parks it if it has DELAY, stores a half message if TRAN_MSG
    delivery.deliver_due(store.clock())          delivers parked messages that are due
    delivery.send_back("shipping", offset)       schedules a retry, or writes a dead letter after the last retry
    delivery.commit("shop", half_offset)         commits a half message
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from commitlake.broker_lite.delivery import message_rewrites
from commitlake.broker_lite.delivery.delayed_messages import DelayedMessageSchedule
from commitlake.broker_lite.delivery.timer_messages import TimerMessages, has_delivery_time
from commitlake.broker_lite.delivery.transactions import Transactions
from commitlake.broker_lite.errors import DiskFullError, MessageRefusedError, SendBackError
from commitlake.broker_lite.stores.rocketmq import MAX_QUEUES, MessageStore, PutResult
from commitlake.broker_lite.stores.rocketmq.dispatch import parse_delay_level
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, TIMER_TOPIC

DEFAULT_MAX_DELAY_MS = 3 * 86_400_000


class Delivery:
    """Service of a store for delays, retries, dead letters and transactions; several threads may use it.

    Attributes:
        store: store of the messages.
    """

    def __init__(self, store: MessageStore, timer_max_delay_ms: int = DEFAULT_MAX_DELAY_MS) -> None:
        """Continue from the progress of deliveries that the store's config files contain.

        Args:
            timer_max_delay_ms: longest delay of a message with a delivery time of its own.
        """
        self.store = store
        self._schedule = DelayedMessageSchedule(store)
        self._transactions = Transactions(store)
        self._timers = TimerMessages(store, timer_max_delay_ms)

    @property
    def delay_level_count(self) -> int:
        """Number of delay levels."""
        return len(self.store.options.delay_levels_ms)

    @property
    def schedule_topic(self) -> str:
        """Topic that holds messages with a delay level."""
        return self.store.options.dialect.schedule_topic

    def send(self, message: NewMessage) -> PutResult:
        """Store a producer's message; its properties may ask for a delay, or make it a half message.

        Returns:
            Position of its first record: for a delayed message in the schedule or timer topic, for a transactional
            message in the topic of half messages.

        Raises:
            MessageRefusedError: if the message is invalid, or the store's dialect does not support it.
            TransactionError: if a transactional message is delayed or has no producer group.
        """
        known = dict(message.properties)
        if not self.store.options.dialect.has_transactions:
            self._check_message_is_supported(known)
        if known.get(props.TRAN_MSG, "").lower() == "true":
            return self._transactions.store_half_message(message)
        if props.DELAY not in known and has_delivery_time(known):
            return self._put_timer_message(self._timers.to_parked_record(message, known, self.store.clock()))
        return self._put_plain_or_delayed_message(message, known.get(props.DELAY))

    def _put_timer_message(self, message: NewMessage) -> PutResult:
        result = self.store.put(message)
        # If the disk is full, the message is already in the log; the next call enters it.
        with suppress(DiskFullError):
            self._timers.load_parked_messages()
        return result

    def _check_message_is_supported(self, properties: dict[str, str]) -> None:
        """Raise an error if a message needs transactions or timers, but the store's dialect does not support them."""
        name = self.store.options.dialect.name
        if properties.get(props.TRAN_MSG, "").lower() == "true":
            raise MessageRefusedError(
                f"{props.TRAN_MSG}: expected a message without a transaction, because {name} does not support "
                "transactions"
            )
        if props.DELAY not in properties and has_delivery_time(properties):
            raise MessageRefusedError(
                f"expected a delayed message with a delay level, because {name} does not support delivery times, found "
                "one with a delivery time"
            )

    def accept_message(self, message: SentMessage) -> PutResult:
        """Store a producer's message with serialized properties, which may make it a delayed or a half message."""
        return self.send(message.as_new_message())

    def _put_plain_or_delayed_message(self, message: NewMessage, delay_property: str | None) -> PutResult:
        level = parse_delay_level(delay_property)
        if delay_property is not None and level is None:
            raise MessageRefusedError(
                f"{props.DELAY}: expected a whole number as the delay level, found {delay_property[:40]!r}"
            )
        if level is not None and level > 0:
            message = message_rewrites.to_scheduled_message(
                message, min(level, self.delay_level_count), self.schedule_topic
            )
        return self.store.put(message)

    def next_due_ms(self) -> int | None:
        """Return the time at which the next delayed message is due, or None if no message is delayed."""
        due = [time for time in (self._schedule.next_due_ms(), self._timers.next_due_ms()) if time is not None]
        return min(due, default=None)

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Store due messages under their real topics, in the order in which they are due.

        Args:
            now_ms: deliver messages that are due at or before this time.
            limit: maximum number of messages with a delay level, and of messages with a delivery time; None for no
                limit.
        """
        return self._schedule.deliver_due(now_ms, limit) + self._timers.deliver_due(now_ms, limit)

    def send_back(
        self,
        group: str,
        physical_offset: int,
        *,
        delay_level: int = 0,
        max_reconsume_times: int | None = None,
        client: Host | None = None,  # noqa: ARG002 (RocketMQ does not record the client)
    ) -> PutResult | None:
        """Schedule a retry of a message that a consumer failed to consume, or write a dead letter.

        The message is delivered again in the group's retry topic after the delay of `delay_level`, which rises with
        each retry; after the last retry it goes to the group's dead-letter topic.

        Args:
            group: group of the consumer.
            physical_offset: physical offset of the record that the consumer received.
            delay_level: 0 for the default, 3 plus the retries so far; negative for the dead-letter topic at once.
            max_reconsume_times: maximum number of retries; None for the group's setting.

        Returns:
            Position of the new record; None for a group without retry queues, whose failures are dropped.

        Raises:
            SendBackError: if there is no record that can be retried at the offset.
        """
        failed = self.store.get_at(physical_offset)
        if failed is None:
            raise SendBackError(f"there is no message to send back at physical offset {physical_offset}")
        if failed.topic in (HALF_TOPIC, OP_TOPIC, TIMER_TOPIC, self.schedule_topic):
            # RocketMQ accepts this, and delivers a message that its producer may still roll back to any group.
            raise SendBackError(
                f"expected a message of a consumer to send back at physical offset {physical_offset}, found one of the "
                f"broker's own topic {failed.topic}"
            )
        if failed.sys_flag & INNER_BATCH:
            # RocketMQ also refuses it; its client then sends the one message of the batch to the retry topic itself.
            raise SendBackError(
                f"expected a single message to send back at physical offset {physical_offset}, found an inner batch"
            )
        limits = self.store.config.groups.find_or_create(group)
        if limits.retry_queues <= 0:
            return None
        limit = limits.retry_max_times if max_reconsume_times is None else max_reconsume_times
        if failed.reconsume_times >= limit or delay_level < 0:
            return self.store.put(message_rewrites.to_dead_letter(failed, group))
        level = delay_level or message_rewrites.FIRST_RETRY_LEVEL + failed.reconsume_times
        # The group's setting may have changed since its topic was created. RocketMQ picks the retry queue at random.
        queues = self.store.config.topics.queue_count(f"{RETRY_PREFIX}{group}") or limits.retry_queues
        queue_id = failed.physical_offset % min(queues, limits.retry_queues, MAX_QUEUES)
        return self._put_plain_or_delayed_message(
            message_rewrites.to_retry_message(failed, group, queue_id, level), str(level)
        )

    def find_half_message(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset, or None; it need not be a half message."""
        return self.store.get_at(physical_offset)

    def commit(self, producer_group: str, half_offset: int) -> PutResult:
        """Commit a half message: store its message for consumers."""
        return self._transactions.commit(producer_group, half_offset)

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Roll back a half message, so that consumers never see its message."""
        self._transactions.rollback(producer_group, half_offset)

    def take_due_half_messages(self, now_ms: int, timeout_ms: int, max_checks: int) -> Iterator[Message | None]:
        """Yield the undecided half messages whose producers must be asked now, and None for each other one examined."""
        return self._transactions.take_due_half_messages(now_ms, timeout_ms, max_checks)

    def pending_half_messages(self) -> list[Message]:
        """Return the half messages that are neither committed nor rolled back, oldest first."""
        return self._transactions.pending_half_messages()
