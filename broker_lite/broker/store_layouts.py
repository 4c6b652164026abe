"""Layouts that a broker's store can have, with the classes that implement them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from commitlake.broker_lite.broker.store_interfaces import BrokerStore, Deliveries
from commitlake.broker_lite.broker.topics import SCHEDULE_QUEUES, TRANSACTION_TOPICS
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.broker_lite.stores.rocketmq.commitlog import FOLDER as COMMITLOG_FOLDER
from commitlake.broker_lite.stores.rocketmq.commitlog import dialect_of
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ
from commitlake.schemas.layouts.jmq.journal import FOLDER as JOURNAL_FOLDER


class FileLayout(StrEnum):
    """Layout of a store's files, with the classes that implement it."""

    ROCKETMQ = "rocketmq"
    JMQ = "jmq"
    BOLTMQ = "boltmq"


DIALECTS = {FileLayout.ROCKETMQ: ROCKETMQ, FileLayout.BOLTMQ: BOLTMQ}
"""Dialects of the layouts with a CommitLog."""


def detect_layouts(root: Path) -> tuple[FileLayout, ...]:
    """Return the layouts that the store in a folder can have; all layouts if the folder has no store yet.

    A CommitLog without a record is compatible with every dialect.
    """
    if (root / COMMITLOG_FOLDER).is_dir():
        found = dialect_of(root)
        return tuple(layout for layout, dialect in DIALECTS.items() if found in (None, dialect))
    return (FileLayout.JMQ,) if (root / JOURNAL_FOLDER).is_dir() else tuple(FileLayout)


def internal_topics(store: BrokerStore) -> Mapping[str, int]:
    """Return the topics in which a store keeps delayed messages and transactions, with their numbers of queues."""
    if not isinstance(store, MessageStore):
        return {}
    dialect = store.options.dialect
    return {dialect.schedule_topic: SCHEDULE_QUEUES, **(TRANSACTION_TOPICS if dialect.has_transactions else {})}


def make_deliveries(store: BrokerStore, timer_max_delay_ms: int) -> Deliveries:
    """Return the object that handles delays, retries, dead letters and transactions of a store.

    Args:
        store: a store in any layout.
        timer_max_delay_ms: longest delay of a message with a delivery time of its own.
    """
    if isinstance(store, JmqStore):
        return store
    assert isinstance(store, MessageStore), "expected a JmqStore or a MessageStore"
    return Delivery(store, timer_max_delay_ms)
