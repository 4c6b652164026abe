"""The layouts that a broker's store can have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from commitlake.broker_lite.broker.interfaces import BrokerStore, Deliveries
from commitlake.broker_lite.broker.topics import SCHEDULE_QUEUES, TRANSACTION_TOPICS
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.broker_lite.stores.rocketmq.commitlog import FOLDER as COMMITLOG_FOLDER
from commitlake.broker_lite.stores.rocketmq.commitlog import dialect_of
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ
from commitlake.schemas.layouts.jmq.journal import FOLDER as JOURNAL_FOLDER


class Layout(StrEnum):
    """Whose files a store has."""

    ROCKETMQ = "rocketmq"
    JMQ = "jmq"
    BOLTMQ = "boltmq"


DIALECTS = {Layout.ROCKETMQ: ROCKETMQ, Layout.BOLTMQ: BOLTMQ}
"""Of the layouts with a CommitLog."""


def layouts_of(root: Path) -> tuple[Layout, ...]:
    """The layouts that the store in a folder can have: one, or where there is none yet, all.

    A CommitLog without a record can become one of any dialect.
    """
    if (root / COMMITLOG_FOLDER).is_dir():
        found = dialect_of(root)
        return tuple(layout for layout, dialect in DIALECTS.items() if found in (None, dialect))
    return (Layout.JMQ,) if (root / JOURNAL_FOLDER).is_dir() else tuple(Layout)


def parking_topics(store: BrokerStore) -> Mapping[str, int]:
    """The topics in which a store keeps messages that are not consumed yet, with the number of their queues."""
    if not isinstance(store, MessageStore):
        return {}
    dialect = store.options.dialect
    return {dialect.schedule_topic: SCHEDULE_QUEUES, **(TRANSACTION_TOPICS if dialect.has_transactions else {})}


def delivery_of(store: BrokerStore, timer_max_delay_ms: int) -> Deliveries:
    """What becomes of the messages of a store that do not go straight to their consumers.

    Args:
        store: in any layout.
        timer_max_delay_ms: the furthest that a message may name a time of its own.
    """
    if isinstance(store, JmqStore):
        return store
    assert isinstance(store, MessageStore), "a layout without deliveries"
    return Delivery(store, timer_max_delay_ms)
