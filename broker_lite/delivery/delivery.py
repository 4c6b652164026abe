"""What a broker does with messages, on top of a store.

No sockets, no threads, and no clock but the store's: somebody calls `deliver_due` when `next_due_ms` has come.

    delivery = Delivery(store)
    delivery.send(message)                       DELAY parks it, TRAN_MSG makes a half of it
    delivery.deliver_due(store.clock())          parked messages whose time has come
    delivery.send_back("shipping", offset)       a consumer failed: retry, or dead letter after the last
    delivery.commit("shop", half_offset)         a producer's decision
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from commitlake.broker_lite.delivery import rewrites
from commitlake.broker_lite.delivery.errors import SendBackError
from commitlake.broker_lite.delivery.schedule import Schedule
from commitlake.broker_lite.delivery.timers import Timers, asks_for_timer
from commitlake.broker_lite.delivery.transactions import Transactions
from commitlake.broker_lite.stores.engine.errors import DiskFullError, MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MAX_QUEUES, MessageStore, PutResult
from commitlake.broker_lite.stores.rocketmq.dispatch import parse_delay_level
from commitlake.broker_lite.stores.rocketmq.prepared import SentMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, TIMER_TOPIC

DEFAULT_MAX_DELAY_MS = 3 * 86_400_000


class Delivery:
    """A broker without a network; several threads may use it.

    Attributes:
        store: where the messages are.
    """

    def __init__(self, store: MessageStore, timer_max_delay_ms: int = DEFAULT_MAX_DELAY_MS) -> None:
        """Take up where the store's config files say.

        Args:
            store: where the messages are.
            timer_max_delay_ms: the furthest that a message may name a time of its own.
        """
        self.store = store
        self._schedule = Schedule(store)
        self._transactions = Transactions(store)
        self._timers = Timers(store, timer_max_delay_ms)

    @property
    def delay_levels(self) -> int:
        """How many delay levels there are."""
        return len(self.store.options.delay_levels_ms)

    @property
    def schedule_topic(self) -> str:
        """Where messages with a delay level wait."""
        return self.store.options.dialect.schedule_topic

    def send(self, message: NewMessage) -> PutResult:
        """Take a producer's message.

        Returns:
            Where its first record was stored: for a delayed message in the schedule or the timer topic, for a
            transactional one in the topic of halves.

        Raises:
            MessageRefusedError: if a broker refuses it, or the store's dialect has no such messages.
            TransactionError: if it is transactional, and delayed or without a producer group.
        """
        known = dict(message.properties)
        if not self.store.options.dialect.has_transactions:
            self._refuse_what_is_later(known)
        if known.get(props.TRAN_MSG, "").lower() == "true":
            return self._transactions.prepare(message)
        if props.DELAY not in known and asks_for_timer(known):
            return self._put_timer(self._timers.park(message, known, self.store.clock()))
        return self._put(message, known.get(props.DELAY))

    def _put_timer(self, message: NewMessage) -> PutResult:
        result = self.store.put(message)
        # Where it is full, the message is in the log all the same, and is entered at the next turn.
        with suppress(DiskFullError):
            self._timers.enter_new()
        return result

    def _refuse_what_is_later(self, known: dict[str, str]) -> None:
        """Refuse what came to RocketMQ after another broker had been made of it."""
        name = self.store.options.dialect.name
        if known.get(props.TRAN_MSG, "").lower() == "true":
            raise MessageRefusedError(f"{props.TRAN_MSG}: expected no transaction, which {name} has not, found one")
        if props.DELAY not in known and asks_for_timer(known):
            raise MessageRefusedError(f"timer: expected a delay level, {name} keeps no other times, found a time")

    def take(self, message: SentMessage) -> PutResult:
        """The same as `send`, of a message as it has come."""
        return self.send(message.with_pairs())

    def _put(self, message: NewMessage, delay: str | None) -> PutResult:
        level = parse_delay_level(delay)
        if delay is not None and level is None:
            raise MessageRefusedError(f"{props.DELAY}: expected an integer, found {delay[:40]!r}")
        if level is not None and level > 0:
            message = rewrites.park(message, min(level, self.delay_levels), self.schedule_topic)
        return self.store.put(message)

    def next_due_ms(self) -> int | None:
        """When the next parked message is due; None where none waits."""
        due = [time for time in (self._schedule.next_due_ms(), self._timers.next_due_ms()) if time is not None]
        return min(due, default=None)

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Store parked messages that are due under their real topics; what was due first comes first.

        Args:
            now_ms: what was due by then.
            limit: how many at most, of those with a level and of those with a time each; None for all.
        """
        return self._schedule.deliver_due(now_ms, limit) + self._timers.deliver_due(now_ms, limit)

    def send_back(
        self,
        group: str,
        physical_offset: int,
        *,
        delay_level: int = 0,
        max_reconsume_times: int | None = None,
        client: Host | None = None,  # noqa: ARG002 (RocketMQ does not keep who it was)
    ) -> PutResult | None:
        """Take back a message that a consumer has failed on.

        It comes again after the delay of `delay_level`, which rises from retry to retry, under the group's retry topic;
        after the last retry it goes to the group's dead letter topic.

        Args:
            group: the consumer's.
            physical_offset: of the record that the consumer had.
            delay_level: 0 for 3 and the retries so far; below 0 for the dead letter topic at once.
            max_reconsume_times: how many retries there are; else what the group has.
            client: the consumer.

        Returns:
            Where it was stored; None for a group without retry queues, whose failures are dropped.

        Raises:
            SendBackError: if there is no such record.
        """
        failed = self.store.get_at(physical_offset)
        if failed is None:
            raise SendBackError(f"expected a message at {physical_offset} to send back, found none")
        if failed.topic in (HALF_TOPIC, OP_TOPIC, TIMER_TOPIC, self.schedule_topic):
            # RocketMQ takes it, and hands a message that its producer may still roll back to any group.
            raise SendBackError(
                f"expected a message that consumers get at {physical_offset}, found one of {failed.topic}"
            )
        if failed.sys_flag & INNER_BATCH:
            # RocketMQ refuses it, too; its client then sends the one message of the batch to the retry topic itself.
            raise SendBackError(f"expected a single message at {physical_offset} to send back, found an inner batch")
        limits = self.store.config.groups.ensure(group)
        if limits.retry_queues <= 0:
            return None
        limit = limits.retry_max_times if max_reconsume_times is None else max_reconsume_times
        if failed.reconsume_times >= limit or delay_level < 0:
            return self.store.put(rewrites.give_up(failed, group))
        level = delay_level or rewrites.FIRST_RETRY_LEVEL + failed.reconsume_times
        # The group's setting may have changed since its topic was made. RocketMQ draws the retry queue by lot.
        queues = self.store.config.topics.queue_count(f"{RETRY_PREFIX}{group}") or limits.retry_queues
        queue_id = failed.physical_offset % min(queues, limits.retry_queues, MAX_QUEUES)
        return self._put(rewrites.send_back(failed, group, queue_id, level), str(level))

    def find_half(self, physical_offset: int) -> Message | None:
        """The message whose record begins at an offset; it may be no half."""
        return self.store.get_at(physical_offset)

    def commit(self, producer_group: str, half_offset: int) -> PutResult:
        """Let consumers see the message of a half; see `Transactions.commit`."""
        return self._transactions.commit(producer_group, half_offset)

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Drop a half; see `Transactions.rollback`."""
        self._transactions.rollback(producer_group, half_offset)

    def take_due_halves(self, now_ms: int, timeout_ms: int, checks_max: int) -> Iterator[Message | None]:
        """The halves whose producers are to be asked now; see `Transactions.take_due`."""
        return self._transactions.take_due(now_ms, timeout_ms, checks_max)

    def pending_halves(self) -> list[Message]:
        """The half messages that nobody has decided, the oldest first."""
        return self._transactions.pending()
