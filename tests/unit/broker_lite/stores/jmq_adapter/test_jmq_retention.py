"""Tests of the deletion of finished retries with their messages; waiting retries and dead letters are kept."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.engine.options import RetentionOptions
from commitlake.broker_lite.stores.jmq import RetryStatus
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from tests.support.brokers import Peer
from tests.support.jmq_brokers import OPTIONS, commit, pull, send, send_back
from tests.support.journal_stores import BROKER
from tests.support.small_stores import Clock

FILE_BYTES = 4096
SMALL = replace(
    OPTIONS,
    journal_file_size_bytes=FILE_BYTES,
    max_body_size_bytes=100,
    queue_count=1,
    retention=RetentionOptions(1, tuple(range(24)), 97, 98, 99),
)
DLQ = "%DLQ%consumers"
RETRIES = "%RETRY%consumers"
NOW = time.time()


def statuses(store: JmqStore) -> list[tuple[int, RetryStatus]]:
    """Return queue offset and status of every row of the retry store."""
    rows = store._failures._retries.select_retries("1 ORDER BY queue_offset", ())
    return [(row.message.queue_offset, row.status) for row in rows]


def test_only_finished_retries_are_deleted_with_their_messages(root: Path, clock: Clock) -> None:
    with JmqStore.open(root, SMALL, clock=clock) as store:
        peer = Peer(Dispatcher(Broker(store, BrokerOptions(address=BROKER))))
        for number in range(80):
            send(peer, number)
        messages = [pull(peer, "orders", number)[0] for number in range(3)]
        late = pull(peer, "orders", 79)[0]
        assert messages[2].physical_offset < FILE_BYTES < 2 * FILE_BYTES < late.physical_offset
        send_back(peer, messages[0])
        send_back(peer, late)
        clock.now_ms += 1000
        assert store.deliver_due(clock.now_ms)
        commit(peer, RETRIES, 2)
        send_back(peer, messages[1])
        send_back(peer, messages[2], delayLevel=-1)
        done, waits, dead = RetryStatus.SUCCEEDED, RetryStatus.RETRYING, RetryStatus.DEAD
        assert statuses(store) == [(0, done), (1, waits), (2, dead), (79, done)]
        assert store.delete_expired_files(NOW) == 0
        assert len(statuses(store)) == 4
        for path in sorted((root / "journal").iterdir())[:2]:
            os.utime(path, (NOW - 9000, NOW - 9000))
        assert store.delete_expired_files(NOW) == 2
        assert statuses(store) == [(1, waits), (2, dead), (79, done)]
        assert [one.body for one in pull(peer, DLQ)] == [b"body 2"]
        clock.now_ms += 1000
        assert store.deliver_due(clock.now_ms)
        assert [one.body for one in pull(peer, RETRIES, 2)] == [b"body 1"]
