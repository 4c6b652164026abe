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

import os
import random
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.shop.journal_story import MAX_RETRIES, SHIPPING_APP, JournalStory
from commitlake.broker_lite.shop.orders import draw_orders
from commitlake.broker_lite.shop.summary import (
    DEFAULT_ORDERS,
    DEFAULT_START_MS,
    ShopSummary,
    check_is_empty,
    count_by_topic,
)
from commitlake.broker_lite.shop.timeline import StoryClock
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore, RetryStatus
from commitlake.schemas.layouts.jmq.offsets import FILE_NAME, FOLDER

SHOP_JOURNAL_OPTIONS = JournalOptions(
    journal_file_size_bytes=256 << 10,
    queue_file_size_bytes=22 * 100,
    consume_file_size_bytes=16 << 10,
    max_body_size_bytes=64 << 10,
    queue_weights={"payments": (3, 1, 1, 1), "shipments": (1, 1)},
    retry_max_attempts=MAX_RETRIES,
)
"""Files so small that several of every kind are written."""


@dataclass(frozen=True)
class ShopJournal(ShopSummary):
    """Summary of the written traffic.

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
    plan = draw_orders(orders, rng, MAX_RETRIES)
    clock = StoryClock(start_ms)
    with JournalStore.open(path, options, clock=clock, chance=rng) as store:
        check_is_empty(path, store.max_journal_offset)
        story = JournalStory(store, clock, plan, rng)
        try:
            story.play()
            summary = _summary(story, start_ms)
        finally:
            story.consuming.close()
    # The time of the offsets is that of their file.
    os.utime(summary.path / FOLDER / FILE_NAME, ns=(summary.end_ms * 1_000_000, summary.end_ms * 1_000_000))
    return summary


def _summary(story: JournalStory, start_ms: int) -> ShopJournal:
    store = story.store
    failed = story.consuming.retries.select("topic = ? AND app = ?", ("shipments", SHIPPING_APP))
    return ShopJournal(
        path=store.path,
        options=store.options,
        start_ms=start_ms,
        end_ms=story.clock.now_ms,
        by_topic=count_by_topic(store),
        failed=sorted(retry.message.business_id for retry in failed),
        dead_lettered=sorted(retry.message.business_id for retry in failed if retry.status is RetryStatus.DEAD),
    )
