"""Tests of the answers of a sync master, which wait for its disk and its slave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.replication.sync_master import SyncMasterDispatcher
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from tests.support.brokers import Peer, send_fields
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock

TIMEOUT_MS = 3000


class Slaves:
    """Slaves of a master, up to date or not."""

    def __init__(self) -> None:
        self.are_near = True

    def near(self, _log_end: int) -> bool:
        """Return whether a slave is up to date, however long the log is."""
        return self.are_near


@pytest.fixture
def slaves() -> Slaves:
    """Return slaves that are up to date."""
    return Slaves()


@pytest.fixture(params=[False, True], ids=["async flush", "sync flush"])
def peer(request: pytest.FixtureRequest, root: Path, clock: Clock, slaves: Slaves) -> Iterator[Peer]:
    """Return a client of a sync master."""
    with MessageStore.open(root, SMALL, clock=clock) as store:
        broker = Broker(store, BrokerOptions(sync_flush=request.param))
        yield Peer(SyncMasterDispatcher(broker, None, slaves.near, TIMEOUT_MS))


def master(peer: Peer) -> SyncMasterDispatcher:
    """Return a sync master for the client."""
    assert isinstance(peer.dispatcher, SyncMasterDispatcher)
    return peer.dispatcher


def send(peer: Peer, **properties: str) -> list[Command]:
    """Send a message, and return the immediate answers."""
    fields = send_fields("orders", {"UNIQ_KEY": "U" * 32, **properties})
    return peer.ask_later(RequestCode.SEND_MESSAGE_V2, fields, b"body")


def synced(peer: Peer) -> None:
    """Report the whole log as written to the disk."""
    if master(peer).needs_log_sync:
        master(peer).on_log_synced(peer.dispatcher.broker.store.log_end)


def test_an_answer_waits_for_the_slave(peer: Peer) -> None:
    assert send(peer) == []
    end = peer.dispatcher.broker.store.log_end
    synced(peer)
    master(peer).on_log_copied(end - 1)
    assert peer.sent == []
    assert master(peer).has_waiting_answers
    master(peer).on_log_copied(end)
    assert [answer.code for answer in peer.sent] == [ResponseCode.SUCCESS]
    assert not master(peer).has_waiting_answers


def test_a_copied_message_waits_for_the_disk_if_flushes_are_synchronous(peer: Peer) -> None:
    send(peer)
    master(peer).on_log_copied(peer.dispatcher.broker.store.log_end)
    assert len(peer.sent) == (0 if peer.dispatcher.broker.options.sync_flush else 1)
    synced(peer)
    assert [answer.code for answer in peer.sent] == [ResponseCode.SUCCESS]


def test_waiting_for_a_slow_slave_ends_after_the_timeout(peer: Peer, clock: Clock) -> None:
    send(peer)
    synced(peer)
    peer.dispatcher.run_periodic_work(clock.now_ms + TIMEOUT_MS - 1)
    assert peer.sent == []
    peer.dispatcher.run_periodic_work(clock.now_ms + TIMEOUT_MS)
    (answer,) = peer.sent
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert answer.ext_fields["queueOffset"] == "0"


def test_without_a_slave_in_range_the_answer_is_immediate(peer: Peer, slaves: Slaves) -> None:
    slaves.are_near = False
    send(peer)
    synced(peer)
    assert [answer.code for answer in peer.sent] == [ResponseCode.SLAVE_NOT_AVAILABLE]


def test_a_message_with_wait_false_does_not_wait_for_a_slave(peer: Peer, slaves: Slaves) -> None:
    send(peer, WAIT="false")
    synced(peer)
    assert [answer.code for answer in peer.sent] == [ResponseCode.SUCCESS]


def test_queries_and_refusals_are_answered_immediately(peer: Peer, slaves: Slaves) -> None:
    slaves.are_near = False
    assert peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0}).code == ResponseCode.SUCCESS
    refused = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("not a topic"))
    assert refused.code == ResponseCode.INVALID_PARAMETER


def test_a_disk_error_is_reported_to_all_waiting_clients(peer: Peer) -> None:
    send(peer)
    send(peer)
    master(peer).on_sync_failed(OSError("no disk"))
    assert [answer.code for answer in peer.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert not master(peer).has_waiting_answers
