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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from commitlake.broker_lite.shop.orders import OrderPlan, draw_orders
from commitlake.broker_lite.shop.story import MAX_RETRIES, SHIPPING_GROUP, Story
from commitlake.broker_lite.shop.summary import (
    DEFAULT_ORDERS,
    DEFAULT_START_MS,
    ShopSummary,
    check_is_empty,
    count_by_topic,
)
from commitlake.broker_lite.shop.timeline import StoryClock
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX

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


@dataclass(frozen=True)
class ShopTraffic(ShopSummary):
    """Summary of the written traffic.

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
    plan = draw_orders(orders, rng, MAX_RETRIES)
    clock = StoryClock(start_ms)
    with MessageStore.open(path, options, clock=clock) as store:
        check_is_empty(path, store.max_physical_offset)
        story = Story(store, clock, plan, rng)
        if pause is not None:
            story.pause = partial(_pause, store, clock, pause)
        story.play()
        summary = _summary(story, plan, start_ms)
    _stamp(summary.path, summary.end_ms)
    return summary


def _pause(store: MessageStore, clock: StoryClock, pause: Callable[[], None]) -> None:
    store.config.save_changed()
    _stamp(store.path, clock.now_ms)
    pause()


def _stamp(path: Path, now_ms: int) -> None:
    """Set the modification times of the files of offsets."""
    for name in ("consumerOffset.json", "delayOffset.json"):
        for file in path.glob(f"config/{name}"):
            os.utime(file, ns=(now_ms * 1_000_000, now_ms * 1_000_000))


def _summary(story: Story, plan: OrderPlan, start_ms: int) -> ShopTraffic:
    store = story.store
    dead = _keys_of(store, f"{DLQ_PREFIX}{SHIPPING_GROUP}")
    return ShopTraffic(
        path=store.path,
        options=store.options,
        start_ms=start_ms,
        end_ms=story.clock.now_ms,
        by_topic=count_by_topic(store),
        rolled_back=[
            f"order-{number}" for number in sorted(plan.rolled_back) if store.options.dialect.has_transactions
        ],
        pending=[half.properties[props.KEYS] for half in story.delivery.pending_halves()],
        retried=sorted(_keys_of(store, f"{RETRY_PREFIX}{SHIPPING_GROUP}") - dead),
        dead_lettered=sorted(dead),
    )


def _keys_of(store: MessageStore, topic: str) -> set[str]:
    messages = store.get(topic, 0, 0, max_messages=store.max_offset(topic, 0)).messages
    return {message.properties[props.KEYS] for message in messages}
