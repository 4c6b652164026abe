"""A snapshot of a live broker with impossible answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions
from commitlake.connectors.rocketmq.errors import ProtocolError, UnreachableError
from commitlake.pipelines.snapshot.broker_queries import fetch_store_snapshot
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.remoting.codes import RequestCode
from tests.support.lies import with_body
from tests.support.live_brokers import LiveBroker, LiveCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as made:
        yield made


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    return cluster.brokers["broker-a"]


@pytest.fixture
def admin(cluster: LiveCluster) -> Iterator[Admin]:
    with Admin(ClientOptions(cluster.address, request_seconds=20)) as made:
        yield made


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        (RequestCode.GET_ALL_DELAY_OFFSET, b'{"offsetTable":{-2147483648:5}}', "delay levels from 1 on, found -214748"),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, b'{"offsetTable":{"t@g":{0:' + b"9" * 5000 + b"}}}", "expected JSON"),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, b"[" * 100_000, "nested too deeply"),
    ],
)
def test_impossible_offsets_are_refused(
    admin: Admin, broker: LiveBroker, code: RequestCode, body: bytes, message: str
) -> None:
    broker.lies[code] = with_body(body)
    with pytest.raises(ProtocolError, match=message):
        fetch_store_snapshot(admin, "broker-a")


def test_an_offset_in_a_queue_that_cannot_exist_leaves_the_others(admin: Admin, broker: LiveBroker) -> None:
    broker.lies[RequestCode.GET_ALL_CONSUMER_OFFSET] = with_body(b'{"offsetTable":{"t@g":{-5:1},"t@h":{0:2}}}')
    offsets = {
        (owner.group, owner.queue_id): offset
        for owner, offset in fetch_store_snapshot(admin, "broker-a").offsets.items()
        if owner.kind is OffsetKind.GROUP
    }
    assert offsets == {("g", -5): 1, ("h", 0): 2}


def test_reading_the_clients_of_very_many_groups_times_out(admin: Admin, broker: LiveBroker) -> None:
    groups = ",".join(f'"t@g{number}":{{0:1}}' for number in range(50))
    broker.lies[RequestCode.GET_ALL_CONSUMER_OFFSET] = with_body(f'{{"offsetTable":{{{groups}}}}}'.encode())
    ticks = itertools.count(0, 100)
    with pytest.raises(
        UnreachableError, match="expected answers about the clients of 50 groups within 600 s, found only those of 6"
    ):
        fetch_store_snapshot(admin, "broker-a", clock=lambda: float(next(ticks)))
