"""The layouts that a broker's store can have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from broker_lite.broker.interfaces import BrokerStore, Deliveries
from broker_lite.delivery import Delivery
from broker_lite.jmq import JmqStore
from broker_lite.store import MessageStore
from broker_lite.store.commitlog import FOLDER as COMMITLOG_FOLDER
from schemas.layouts.journal import FOLDER as JOURNAL_FOLDER


class Layout(StrEnum):
    """Whose files a store has."""

    ROCKETMQ = "rocketmq"
    JMQ = "jmq"


_FOLDERS = {Layout.ROCKETMQ: COMMITLOG_FOLDER, Layout.JMQ: JOURNAL_FOLDER}


def layout_of(root: Path) -> Layout | None:
    """The layout of the store in a folder; None where there is no store yet."""
    return next((layout for layout, folder in _FOLDERS.items() if (root / folder).is_dir()), None)


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
