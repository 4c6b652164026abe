"""Generator of three days of traffic of a small example shop, for demos, queries and tests.

An order starts as a half message in `orders`: the shop reserves the goods, then commits (tag `created`) or, if
something is sold out, rolls back. The process of one order crashes in between: its half message stays pending. Each
created order sends a reminder to `payments`, delayed by an hour. The customer pays (`paid`) before or after it; a few
cards are `declined` first. At night the payments of the day are `settled`, in batches. A paid order goes to `shipments`
(`requested`), where the group `shipping-service` hands it to a carrier and reports `shipped` to `orders`. Some
shipments fail and are retried after 10, 30 and 60 seconds; a few always fail and end in `%DLQ%shipping-service`.

order-4711 goes through most of this: created in a transaction, reminded after an hour, paid after 80 minutes, refused
by the carrier twice, shipped at the third attempt.

BoltMQ has no transactions: there an order is sent when it is decided, and orders that are not committed are not sent.

The mail service consumes the payments every three hours, and stops six hours before the end; the last reminders are
still delayed then. The traffic has its own clock, so the same arguments produce the same records; only the names of
index files depend on the machine's time zone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.shop.messages import QUEUES, Producer
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
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX

STORY_MS = 3 * DAY
LAST_ORDER_BEFORE_END_MS = 10 * MINUTE
REMINDER_LEVEL = "17"
"""One hour."""
FEATURED_PAYS_IN_MS = 80 * MINUTE
DECLINED_SHARE = 0.05
MAIL_IS_BEHIND_MS = 6 * HOUR
MAIL_EACH_MS = 3 * HOUR
"""Interval at which the mail service consumes, until it stops."""
SETTLEMENT_BATCH = 16

SHIPPING_GROUP = "shipping-service"
MAIL_GROUP = "mail-service"
MAX_RETRIES = 3
SHOP_OPTIONS = StoreOptions(
    segment_size_bytes=256 << 10,
    consume_queue_file_size_bytes=20 * 100,
    index_slots=500,
    index_entries=2000,
    max_message_size_bytes=64 << 10,
)
"""Files so small that several of every kind are written."""
BOLTMQ_SHOP_OPTIONS = replace(SHOP_OPTIONS, dialect=BOLTMQ)
"""Same options in BoltMQ's dialect."""


@dataclass
class TrafficGenerator:
    """Generator of the traffic of an example shop, for a store in RocketMQ's layout.

    Attributes:
        store: store to write to.
        clock: clock of that store.
        plan: orders and their outcomes.
        rng: source of all randomness.
        pause: called after each round of the mail service, whether or not it still consumes.
    """

    store: MessageStore
    clock: SimulatedClock
    plan: OrderPlan
    rng: random.Random
    pause: Callable[[], None] = field(default=lambda: None)
    shop: Producer = field(default_factory=lambda: Producer("shop", Host.of("10.0.1.10", 41200), 0x1F90))
    cashier: Producer = field(default_factory=lambda: Producer("cashier", Host.of("10.0.1.11", 41300), 0x2A01))
    shipper: Producer = field(default_factory=lambda: Producer("shipper", Host.of("10.0.1.12", 41400), 0x0C3D))

    def __post_init__(self) -> None:
        self.delivery = Delivery(self.store)
        self._timeline = EventTimeline(self.clock)
        self._to_settle: list[Order] = []
        self._orders = {order.key: order for order in self.plan.orders}

    def generate_traffic(self) -> None:
        """Write all example traffic to the store, starting at the clock's time."""
        start_ms = self.clock.now_ms
        end_ms = start_ms + STORY_MS
        self._create_topics_and_groups()
        step = (STORY_MS - LAST_ORDER_BEFORE_END_MS) // len(self.plan.orders)
        for number, order in enumerate(self.plan.orders):
            self._timeline.plan_event_at(
                start_ms + number * step + self.rng.randrange(step), partial(self._send_order, order)
            )
        for day in range(1, STORY_MS // DAY):
            self._timeline.plan_event_at(start_ms + day * DAY, self._send_settlements)
        stops_ms = end_ms - MAIL_IS_BEHIND_MS
        for mail_ms in range(start_ms + MAIL_EACH_MS, end_ms, MAIL_EACH_MS):
            self._timeline.plan_event_at(mail_ms, partial(self._run_mail_service, stops_ms))
        for time_ms, event in self._timeline.events_before(end_ms):
            self._advance_clock(time_ms)
            event()
            self._consume_shipments()
        self._advance_clock(end_ms)
        self._run_mail_service(stops_ms)

    def _create_topics_and_groups(self) -> None:
        for topic, queues in QUEUES.items():
            self.store.config.topics.create(topic, queues)
        self.store.config.groups.create(SHIPPING_GROUP, retry_max_times=MAX_RETRIES)
        self.store.config.groups.create(MAIL_GROUP)

    def _advance_clock(self, time_ms: int) -> None:
        """Advance the clock to a time, and deliver delayed messages that become due before then."""
        while (due_ms := self.delivery.next_due_ms()) is not None and due_ms <= time_ms:
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
            self.delivery.deliver_due(self.clock.now_ms)
            self._consume_shipments()
        self.clock.now_ms = time_ms

    def _send_order(self, order: Order) -> None:
        if not self.store.options.dialect.has_transactions:
            # Without half messages, an order is sent only after it is decided.
            if order.number not in self.plan.pending | self.plan.rolled_back:
                self._timeline.plan_event_after(self.rng.randint(20, 900), partial(self._send_decided_order, order))
            return
        group = self.shop.group
        extra = {props.TRAN_MSG: "true", props.PGROUP: group}
        message = self.shop.make_message(("orders", "created"), order, self.clock.now_ms, _order_content(order), extra)
        half = self.delivery.send(message)
        if order.number in self.plan.pending:
            return
        decide_in_ms = self.rng.randint(20, 900)
        if order.number in self.plan.rolled_back:
            self._timeline.plan_event_after(decide_in_ms, partial(self.delivery.rollback, group, half.physical_offset))
        else:
            self._timeline.plan_event_after(decide_in_ms, partial(self._commit_order, order, half.physical_offset))

    def _commit_order(self, order: Order, half_offset: int) -> None:
        self.delivery.commit(self.shop.group, half_offset)
        self._plan_payment(order)

    def _send_decided_order(self, order: Order) -> None:
        self._send_order_message(self.shop, ("orders", "created"), order, _order_content(order))
        self._plan_payment(order)

    def _plan_payment(self, order: Order) -> None:
        self._send_order_message(
            self.shop, ("payments", "reminder"), order, {"due": order.amount}, {props.DELAY: REMINDER_LEVEL}
        )
        if order.number == FEATURED_ORDER:
            self._timeline.plan_event_after(FEATURED_PAYS_IN_MS, partial(self._send_payment, order))
            return
        pays_in_ms = self.rng.randint(2 * MINUTE, 3 * HOUR)
        if self.rng.random() < DECLINED_SHARE:
            declined = partial(
                self._send_order_message, self.cashier, ("payments", "declined"), order, {"reason": "card expired"}
            )
            self._timeline.plan_event_after(pays_in_ms // 2, declined)
        self._timeline.plan_event_after(pays_in_ms, partial(self._send_payment, order))

    def _send_order_message(
        self,
        producer: Producer,
        topic_and_tag: tuple[str, str],
        order: Order,
        content: dict[str, object],
        extra_properties: dict[str, str] | None = None,
    ) -> None:
        self.delivery.send(producer.make_message(topic_and_tag, order, self.clock.now_ms, content, extra_properties))

    def _send_payment(self, order: Order) -> None:
        self._send_order_message(self.cashier, ("payments", "paid"), order, {"amount": order.amount})
        self._to_settle.append(order)
        request = partial(
            self._send_order_message, self.shipper, ("shipments", "requested"), order, {"city": order.city}
        )
        self._timeline.plan_event_after(self.rng.randint(10 * MINUTE, 40 * MINUTE), request)

    def _send_settlements(self) -> None:
        """Send the day's settlements in batches, each to one queue."""
        now_ms = self.clock.now_ms
        for queue_id in range(QUEUES["payments"]):
            orders = [order for order in self._to_settle if order.number % QUEUES["payments"] == queue_id]
            for start in range(0, len(orders), SETTLEMENT_BATCH):
                batch = orders[start : start + SETTLEMENT_BATCH]
                place = ("payments", "settled")
                self.store.put_batch(
                    [self.cashier.make_message(place, order, now_ms, {"amount": order.amount}) for order in batch]
                )
        self._to_settle.clear()

    def _consume_shipments(self) -> None:
        """Consume the messages of the shipping service's queues."""
        offsets = self.store.config.consumer_offsets
        sources = [("shipments", queue_id) for queue_id in range(QUEUES["shipments"])]
        for topic, queue_id in [*sources, (f"{RETRY_PREFIX}{SHIPPING_GROUP}", 0)]:
            found = self.store.get(topic, queue_id, offsets.get(topic, SHIPPING_GROUP, queue_id) or 0)
            for message in found.messages:
                self._try_shipment(message)
            if found.messages:
                offsets.commit(topic, SHIPPING_GROUP, queue_id, found.next_offset)

    def _try_shipment(self, message: Message) -> None:
        order = self._orders[message.properties[props.KEYS]]
        if message.reconsume_times < self.plan.failures.get(order.number, 0):
            self.delivery.send_back(SHIPPING_GROUP, message.physical_offset)
            return
        content = {"city": order.city, "attempt": message.reconsume_times + 1}
        self._send_order_message(self.shipper, ("orders", "shipped"), order, content)

    def _run_mail_service(self, stop_time_ms: int) -> None:
        """Let the mail service consume payments stored until now, or until the given stop time if that is earlier."""
        self._consume_payments(min(self.clock.now_ms, stop_time_ms))
        self.pause()

    def _consume_payments(self, until_ms: int) -> None:
        """Consume, as the mail service, the payment messages that were stored before a time."""
        for queue_id in range(QUEUES["payments"]):
            offset = self.store.offset_by_time("payments", queue_id, until_ms)
            self.store.config.consumer_offsets.commit("payments", MAIL_GROUP, queue_id, offset)


def _order_content(order: Order) -> dict[str, object]:
    lines = [line._asdict() for line in order.lines]
    return {"customer": order.customer, "city": order.city, "lines": lines, "amount": order.amount}


@dataclass(frozen=True)
class ShopTraffic(ShopSummary):
    """Summary of the example traffic that was written to a store in RocketMQ's layout.

    Attributes:
        options: options with which the store must be opened.
        rolled_back: keys of orders that were rolled back.
        pending: keys of orders whose half message is undecided.
        retried: keys of orders that were shipped after failures.
    """

    options: StoreOptions
    rolled_back: list[str]
    pending: list[str]
    retried: list[str]


def fill_shop_store(
    path: str | Path,
    *,
    orders: int = DEFAULT_ORDERS,
    seed: int = 0,
    start_ms: int = DEFAULT_START_MS,
    options: StoreOptions = SHOP_OPTIONS,
    pause: Callable[[], None] | None = None,
) -> ShopTraffic:
    """Write three days of traffic into a new store, and close it.

    Args:
        path: a folder without messages.
        orders: number of orders; order-4711 is one of them.
        seed: seed of all randomness.
        start_ms: time of the first event; the last is three days later.
        pause: called every three hours of the traffic's clock; the files of offsets, and their modification times, then
            show that moment.

    Raises:
        ValueError: if there are too few orders.
        StoreFilesError: if the folder already contains messages.
    """
    rng = random.Random(seed)  # noqa: S311 - must be reproducible, not secure
    plan = generate_orders(orders, rng, MAX_RETRIES)
    clock = SimulatedClock(start_ms)
    with MessageStore.open(path, options, clock=clock) as store:
        check_store_is_empty(path, store.max_physical_offset)
        story = TrafficGenerator(store, clock, plan, rng)
        if pause is not None:
            story.pause = partial(_save_and_pause, store, clock, pause)
        story.generate_traffic()
        summary = _summarize_traffic(story, plan, start_ms)
    _set_file_times(summary.path, summary.end_ms)
    return summary


def _save_and_pause(store: MessageStore, clock: SimulatedClock, on_pause: Callable[[], None]) -> None:
    with store.config.saved():  # otherwise the store gives a file that has not changed for seconds the time of now
        _set_file_times(store.path, clock.now_ms)
        on_pause()


def _set_file_times(path: Path, now_ms: int) -> None:
    """Set the modification times of the offset files to the time of the generated traffic."""
    for name in ("consumerOffset.json", "delayOffset.json"):
        for file in path.glob(f"config/{name}"):
            os.utime(file, ns=(now_ms * 1_000_000, now_ms * 1_000_000))


def _summarize_traffic(story: TrafficGenerator, order_plan: OrderPlan, start_ms: int) -> ShopTraffic:
    store = story.store
    dead = _business_keys_of_topic(store, f"{DLQ_PREFIX}{SHIPPING_GROUP}")
    return ShopTraffic(
        path=store.path,
        options=store.options,
        start_ms=start_ms,
        end_ms=story.clock.now_ms,
        by_topic=count_records_by_topic(store),
        rolled_back=[
            f"order-{number}" for number in sorted(order_plan.rolled_back) if store.options.dialect.has_transactions
        ],
        pending=[half.properties[props.KEYS] for half in story.delivery.pending_half_messages()],
        retried=sorted(_business_keys_of_topic(store, f"{RETRY_PREFIX}{SHIPPING_GROUP}") - dead),
        dead_lettered=sorted(dead),
    )


def _business_keys_of_topic(store: MessageStore, topic: str) -> set[str]:
    messages = store.get(topic, 0, 0, max_messages=store.max_offset(topic, 0)).messages
    return {message.properties[props.KEYS] for message in messages}
