"""Generator of three days of traffic of the same example shop, written into a store in JMQ's layout.

An order is `created` in `orders`, and paid for in `payments` (`paid`, sometimes `declined` before); at night the
payments of the day are `settled`, in batches. A paid order goes to `shipments` (`requested`), where the application
`shipping-service` hands it to a carrier and reports `shipped` to `orders`. All messages of an order have its key as
business id, which determines their queue; the queues of settlements are chosen by weight. Some shipments fail and are
retried after 1, 3 and 9 seconds; a few always fail, and are dead letters of the retry store. JMQ has no transactions
and no delays, so there are no reminders, and an unpaid order has only its `created` message.

order-4711 is created, paid after 80 minutes, refused by the carrier twice, and shipped at the third attempt.

At the end the mail service lags by six hours. The traffic has its own clock, so the same arguments produce the same
records.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from commitlake.broker_lite.shop.orders import FEATURED_ORDER, Order, OrderPlan, generate_orders
from commitlake.broker_lite.shop.traffic_clock import (
    DAY,
    DEFAULT_ORDERS,
    DEFAULT_START_MS,
    HOUR,
    MINUTE,
    EventTimeline,
    ShopSummary,
    SimulatedClock,
    check_store_is_empty,
    count_records_by_topic,
)
from commitlake.broker_lite.stores.jmq import Batch, Consuming, JournalOptions, JournalStore, RetryStatus
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage
from commitlake.schemas.layouts.jmq.offset_json import FILE_NAME, FOLDER, ConsumedQueue
from commitlake.schemas.layouts.rocketmq.hosts import Host

STORY_MS = 3 * DAY
LAST_ORDER_BEFORE_END_MS = 10 * MINUTE
FEATURED_PAYS_IN_MS = 80 * MINUTE
DECLINED_SHARE = 0.05
MAIL_IS_BEHIND_MS = 6 * HOUR
SETTLEMENT_BATCH = 16
CONSUMED_AT_ONCE = 32

SHIPPING_APP = "shipping-service"
MAIL_APP = "mail-service"
MAX_RETRIES = 3
SHOP_JOURNAL_OPTIONS = JournalOptions(
    journal_file_size_bytes=256 << 10,
    queue_file_size_bytes=22 * 100,
    consume_file_size_bytes=16 << 10,
    max_body_size_bytes=64 << 10,
    queue_weights={"payments": (3, 1, 1, 1), "shipments": (1, 1)},
    retry_max_attempts=MAX_RETRIES,
)
"""Files so small that several of every kind are written."""


class OrderStep(IntEnum):
    """Step of an order that a message reports; the number of the step is the business tag of the message."""

    CREATED = 1
    PAID = 2
    DECLINED = 3
    REQUESTED = 4
    SHIPPED = 5
    SETTLED = 6


class App(NamedTuple):
    """Application of the shop, with its address."""

    name: str
    host: Host


SHOP = App("shop", Host.of("10.0.1.10", 41200))
CASHIER = App("cashier", Host.of("10.0.1.11", 41300))
SHIPPER = App("shipper", Host.of("10.0.1.12", 41400))
CARRIER = Host.of("10.0.1.21", 42100)
MAILER = Host.of("10.0.1.22", 42200)


@dataclass
class JournalTrafficGenerator:
    """Generator of the traffic of an example shop, for a store in JMQ's layout.

    Attributes:
        store: store to write to.
        clock: clock of that store.
        plan: orders and their outcomes.
        rng: source of all randomness.
    """

    store: JournalStore
    clock: SimulatedClock
    plan: OrderPlan
    rng: random.Random

    def __post_init__(self) -> None:
        self.consuming = Consuming(self.store)
        self._timeline = EventTimeline(self.clock)
        self._to_settle: list[Order] = []
        self._orders = {order.key: order for order in self.plan.orders}

    def generate_traffic(self) -> None:
        """Write all example traffic to the store, starting at the clock's time."""
        start_ms = self.clock.now_ms
        end_ms = start_ms + STORY_MS
        step = (STORY_MS - LAST_ORDER_BEFORE_END_MS) // len(self.plan.orders)
        for number, order in enumerate(self.plan.orders):
            self._timeline.plan_event_at(
                start_ms + number * step + self.rng.randrange(step), partial(self._send_order, order)
            )
        for day in range(1, STORY_MS // DAY):
            self._timeline.plan_event_at(start_ms + day * DAY, self._send_settlements)
        for hour in range(1, STORY_MS // HOUR):
            self._timeline.plan_event_at(start_ms + hour * HOUR, self._consume_payments)
        for time_ms, event in self._timeline.events_before(end_ms):
            self._advance_clock(time_ms)
            event()
            self._consume_shipments()
        self._advance_clock(end_ms)

    def _advance_clock(self, time_ms: int) -> None:
        """Advance the clock to a time, and retry failed shipments that become due before then."""
        while (due_ms := self.consuming.retries.next_due_ms("shipments", SHIPPING_APP)) is not None:
            if due_ms > time_ms:
                break
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
            self._retry_shipments()
        self.clock.now_ms = time_ms

    def _make_order_message(
        self,
        app: App,
        topic: str,
        order_step: OrderStep,
        order: Order,
        content: Mapping[str, Any],
        *,
        is_ordered: bool = True,
    ) -> NewJournalMessage:
        body = json.dumps({"order": order.number, **content}, ensure_ascii=False).encode()
        properties = {"step": order_step.name.lower(), **order.user_properties}
        return NewJournalMessage(
            topic=topic,
            body=body,
            send_timestamp=self.clock.now_ms,
            client_address=app.host,
            app=app.name,
            business_id=order.key,
            business_tag=order_step,
            is_ordered=is_ordered,
            properties=tuple(properties.items()),
        )

    def _send_order_message(
        self, app: App, topic: str, order_step: OrderStep, order: Order, content: Mapping[str, Any]
    ) -> None:
        self.store.put(self._make_order_message(app, topic, order_step, order, content))

    def _send_order(self, order: Order) -> None:
        lines = [line._asdict() for line in order.lines]
        content = {"customer": order.customer, "city": order.city, "lines": lines, "amount": order.amount}
        self._send_order_message(SHOP, "orders", OrderStep.CREATED, order, content)
        if order.number in self.plan.rolled_back | self.plan.pending:
            return  # never paid
        pays_in_ms = self.rng.randint(2 * MINUTE, 3 * HOUR)
        if order.number == FEATURED_ORDER:
            pays_in_ms = FEATURED_PAYS_IN_MS
        elif self.rng.random() < DECLINED_SHARE:
            declined = partial(
                self._send_order_message, CASHIER, "payments", OrderStep.DECLINED, order, {"reason": "card expired"}
            )
            self._timeline.plan_event_after(pays_in_ms // 2, declined)
        self._timeline.plan_event_after(pays_in_ms, partial(self._send_payment, order))

    def _send_payment(self, order: Order) -> None:
        self._send_order_message(CASHIER, "payments", OrderStep.PAID, order, {"amount": order.amount})
        self._to_settle.append(order)
        request = partial(
            self._send_order_message, SHIPPER, "shipments", OrderStep.REQUESTED, order, {"city": order.city}
        )
        self._timeline.plan_event_after(self.rng.randint(10 * MINUTE, 40 * MINUTE), request)

    def _send_settlements(self) -> None:
        """Send the settlements of the day in batches; the broker chooses a queue for each batch."""
        for start in range(0, len(self._to_settle), SETTLEMENT_BATCH):
            batch = self._to_settle[start : start + SETTLEMENT_BATCH]
            self.store.put_batch(
                [
                    self._make_order_message(
                        CASHIER, "payments", OrderStep.SETTLED, order, {"amount": order.amount}, is_ordered=False
                    )
                    for order in batch
                ]
            )
        self._to_settle.clear()

    def _consume_shipments(self) -> None:
        """Consume the messages of the shipping service's queues."""
        for queue_id in range(self.store.options.queue_count_of("shipments")):
            while (batch := self._take_batch("shipments", SHIPPING_APP, queue_id, CARRIER)) is not None:
                failures = {
                    message.queue_offset: "the carrier refuses it"
                    for message in batch.messages
                    if not self._try_shipment(message, 1)
                }
                self.consuming.finish_batch(batch, failures)

    def _retry_shipments(self) -> None:
        for retry in self.consuming.take_retries("shipments", SHIPPING_APP, CONSUMED_AT_ONCE):
            is_shipped = self._try_shipment(retry.message, retry.attempt)
            self.consuming.finish_retry(retry, CARRIER, None if is_shipped else "the carrier refuses it again")

    def _try_shipment(self, message: JournalMessage, attempt: int) -> bool:
        order = self._orders[message.business_id]
        if attempt <= self.plan.failures.get(order.number, 0):
            return False
        self._send_order_message(SHIPPER, "orders", OrderStep.SHIPPED, order, {"city": order.city, "attempt": attempt})
        return True

    def _consume_payments(self) -> None:
        """Consume the payments of the mail service, except those of the last six hours."""
        for queue_id in range(self.store.options.queue_count_of("payments")):
            end = self.store.offset_by_time("payments", queue_id, self.clock.now_ms - MAIL_IS_BEHIND_MS)
            while (batch := self._take_batch("payments", MAIL_APP, queue_id, MAILER, end)) is not None:
                self.consuming.finish_batch(batch)

    def _take_batch(
        self, topic: str, app: str, queue_id: int, client: Host, end_offset: int | None = None
    ) -> Batch | None:
        place = ConsumedQueue(topic, app, queue_id)
        done = self.store.offsets.get_or_queue_start(place).ack
        most = CONSUMED_AT_ONCE if end_offset is None else min(CONSUMED_AT_ONCE, end_offset - done)
        return self.consuming.take_batch(topic, app, queue_id, client, most) if most > 0 else None


@dataclass(frozen=True)
class ShopJournal(ShopSummary):
    """Summary of the example traffic that was written to a store in JMQ's layout.

    Attributes:
        options: options with which the store must be opened.
        failed: keys of orders whose shipment failed at least once.
    """

    options: JournalOptions
    failed: list[str]


def fill_shop_journal(
    path: str | Path,
    *,
    orders: int = DEFAULT_ORDERS,
    seed: int = 0,
    start_ms: int = DEFAULT_START_MS,
    options: JournalOptions = SHOP_JOURNAL_OPTIONS,
) -> ShopJournal:
    """Write three days of traffic into a new store, and close it.

    Args:
        path: a folder without messages.
        orders: number of orders; order-4711 is one of them.
        seed: seed of all randomness.
        start_ms: time of the first event; the last is three days later.

    Raises:
        ValueError: if there are too few orders.
        StoreFilesError: if the folder already contains messages.
    """
    rng = random.Random(seed)  # noqa: S311 - must be reproducible, not secure
    plan = generate_orders(orders, rng, MAX_RETRIES)
    clock = SimulatedClock(start_ms)
    with JournalStore.open(path, options, clock=clock, rng=rng) as store:
        check_store_is_empty(path, store.max_journal_offset)
        story = JournalTrafficGenerator(store, clock, plan, rng)
        try:
            story.generate_traffic()
            summary = _summarize_traffic(story, start_ms)
        finally:
            story.consuming.close()
    # The time of the offsets is that of their file.
    os.utime(summary.path / FOLDER / FILE_NAME, ns=(summary.end_ms * 1_000_000, summary.end_ms * 1_000_000))
    return summary


def _summarize_traffic(story: JournalTrafficGenerator, start_ms: int) -> ShopJournal:
    store = story.store
    failed = story.consuming.retries.select_retries("topic = ? AND app = ?", ("shipments", SHIPPING_APP))
    return ShopJournal(
        path=store.path,
        options=store.options,
        start_ms=start_ms,
        end_ms=story.clock.now_ms,
        by_topic=count_records_by_topic(store),
        failed=sorted(retry.message.business_id for retry in failed),
        dead_lettered=sorted(retry.message.business_id for retry in failed if retry.status is RetryStatus.DEAD),
    )
