"""Traffic of the example shop in order of time, with the work of the broker and the consumers in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.shop.messages import QUEUES, Producer
from commitlake.broker_lite.shop.orders import FEATURED_ORDER, Order, OrderPlan
from commitlake.broker_lite.shop.timeline import DAY, HOUR, MINUTE, StoryClock, Timeline
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX

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


@dataclass
class Story:
    """Generator of the shop's traffic.

    Attributes:
        store: store to write to.
        clock: clock of that store.
        plan: orders and their outcomes.
        rng: source of all randomness.
        pause: called after each round of the mail service, whether or not it still consumes.
    """

    store: MessageStore
    clock: StoryClock
    plan: OrderPlan
    rng: random.Random
    pause: Callable[[], None] = field(default=lambda: None)
    shop: Producer = field(default_factory=lambda: Producer("shop", Host.of("10.0.1.10", 41200), 0x1F90))
    cashier: Producer = field(default_factory=lambda: Producer("cashier", Host.of("10.0.1.11", 41300), 0x2A01))
    shipper: Producer = field(default_factory=lambda: Producer("shipper", Host.of("10.0.1.12", 41400), 0x0C3D))

    def __post_init__(self) -> None:
        self.delivery = Delivery(self.store)
        self._timeline = Timeline(self.clock)
        self._to_settle: list[Order] = []
        self._orders = {order.key: order for order in self.plan.orders}

    def play(self) -> None:
        """Generate all traffic, starting at the clock's time."""
        start_ms = self.clock.now_ms
        end_ms = start_ms + STORY_MS
        self._set_up()
        step = (STORY_MS - LAST_ORDER_BEFORE_END_MS) // len(self.plan.orders)
        for number, order in enumerate(self.plan.orders):
            self._timeline.at(start_ms + number * step + self.rng.randrange(step), partial(self._create, order))
        for day in range(1, STORY_MS // DAY):
            self._timeline.at(start_ms + day * DAY, self._settle)
        stops_ms = end_ms - MAIL_IS_BEHIND_MS
        for mail_ms in range(start_ms + MAIL_EACH_MS, end_ms, MAIL_EACH_MS):
            self._timeline.at(mail_ms, partial(self._round_of_mail, stops_ms))
        for time_ms, event in self._timeline.until(end_ms):
            self._advance(time_ms)
            event()
            self._ship()
        self._advance(end_ms)
        self._round_of_mail(stops_ms)

    def _set_up(self) -> None:
        for topic, queues in QUEUES.items():
            self.store.config.topics.create(topic, queues)
        self.store.config.groups.create(SHIPPING_GROUP, retry_max_times=MAX_RETRIES)
        self.store.config.groups.create(MAIL_GROUP)

    def _advance(self, time_ms: int) -> None:
        """Advance the clock, and deliver delayed messages when they are due."""
        while (due_ms := self.delivery.next_due_ms()) is not None and due_ms <= time_ms:
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
            self.delivery.deliver_due(self.clock.now_ms)
            self._ship()
        self.clock.now_ms = time_ms

    def _create(self, order: Order) -> None:
        if not self.store.options.dialect.has_transactions:
            # Without half messages, an order is sent only after it is decided.
            if order.number not in self.plan.pending | self.plan.rolled_back:
                self._timeline.after(self.rng.randint(20, 900), partial(self._created_at_once, order))
            return
        group = self.shop.group
        extra = {props.TRAN_MSG: "true", props.PGROUP: group}
        message = self.shop.message(("orders", "created"), order, self.clock.now_ms, _content(order), extra)
        half = self.delivery.send(message)
        if order.number in self.plan.pending:
            return
        decide_in_ms = self.rng.randint(20, 900)
        if order.number in self.plan.rolled_back:
            self._timeline.after(decide_in_ms, partial(self.delivery.rollback, group, half.physical_offset))
        else:
            self._timeline.after(decide_in_ms, partial(self._commit, order, half.physical_offset))

    def _commit(self, order: Order, half_offset: int) -> None:
        self.delivery.commit(self.shop.group, half_offset)
        self._created(order)

    def _created_at_once(self, order: Order) -> None:
        self._send(self.shop, ("orders", "created"), order, _content(order))
        self._created(order)

    def _created(self, order: Order) -> None:
        self._send(self.shop, ("payments", "reminder"), order, {"due": order.amount}, {props.DELAY: REMINDER_LEVEL})
        if order.number == FEATURED_ORDER:
            self._timeline.after(FEATURED_PAYS_IN_MS, partial(self._paid, order))
            return
        pays_in_ms = self.rng.randint(2 * MINUTE, 3 * HOUR)
        if self.rng.random() < DECLINED_SHARE:
            declined = partial(self._send, self.cashier, ("payments", "declined"), order, {"reason": "card expired"})
            self._timeline.after(pays_in_ms // 2, declined)
        self._timeline.after(pays_in_ms, partial(self._paid, order))

    def _send(
        self,
        producer: Producer,
        place: tuple[str, str],
        order: Order,
        content: dict[str, object],
        extra: dict[str, str] | None = None,
    ) -> None:
        self.delivery.send(producer.message(place, order, self.clock.now_ms, content, extra))

    def _paid(self, order: Order) -> None:
        self._send(self.cashier, ("payments", "paid"), order, {"amount": order.amount})
        self._to_settle.append(order)
        request = partial(self._send, self.shipper, ("shipments", "requested"), order, {"city": order.city})
        self._timeline.after(self.rng.randint(10 * MINUTE, 40 * MINUTE), request)

    def _settle(self) -> None:
        """Send the day's settlements in batches, each to one queue."""
        now_ms = self.clock.now_ms
        for queue_id in range(QUEUES["payments"]):
            orders = [order for order in self._to_settle if order.number % QUEUES["payments"] == queue_id]
            for start in range(0, len(orders), SETTLEMENT_BATCH):
                batch = orders[start : start + SETTLEMENT_BATCH]
                place = ("payments", "settled")
                self.store.put_batch(
                    [self.cashier.message(place, order, now_ms, {"amount": order.amount}) for order in batch]
                )
        self._to_settle.clear()

    def _ship(self) -> None:
        """Consume the messages of the shipping service."""
        offsets = self.store.config.consumer_offsets
        sources = [("shipments", queue_id) for queue_id in range(QUEUES["shipments"])]
        for topic, queue_id in [*sources, (f"{RETRY_PREFIX}{SHIPPING_GROUP}", 0)]:
            found = self.store.get(topic, queue_id, offsets.get(topic, SHIPPING_GROUP, queue_id) or 0)
            for message in found.messages:
                self._hand_over(message)
            if found.messages:
                offsets.commit(topic, SHIPPING_GROUP, queue_id, found.next_offset)

    def _hand_over(self, message: Message) -> None:
        order = self._orders[message.properties[props.KEYS]]
        if message.reconsume_times < self.plan.failures.get(order.number, 0):
            self.delivery.send_back(SHIPPING_GROUP, message.physical_offset)
            return
        content = {"city": order.city, "attempt": message.reconsume_times + 1}
        self._send(self.shipper, ("orders", "shipped"), order, content)

    def _round_of_mail(self, stops_ms: int) -> None:
        """Consume the payments until now, or until the mail service stops."""
        self._send_mail(min(self.clock.now_ms, stops_ms))
        self.pause()

    def _send_mail(self, until_ms: int) -> None:
        """Consume the payments of the mail service up to a time."""
        for queue_id in range(QUEUES["payments"]):
            offset = self.store.offset_by_time("payments", queue_id, until_ms)
            self.store.config.consumer_offsets.commit("payments", MAIL_GROUP, queue_id, offset)


def _content(order: Order) -> dict[str, object]:
    lines = [line._asdict() for line in order.lines]
    return {"customer": order.customer, "city": order.city, "lines": lines, "amount": order.amount}
