"""Tests of timer messages across a restart: each is delivered once."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import DiskFullError, MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.message_stores import SMALL, message
from tests.support.small_stores import Clock, crash


def timed(number: int, seconds: int, **more: str) -> NewMessage:
    """Return a message that is to be delivered after some seconds."""
    pairs = (("UNIQ_KEY", f"U{number}"), ("TIMER_DELAY_SEC", str(seconds)), *more.items())
    return message(number, properties=pairs)


def bodies(store: MessageStore) -> list[bytes]:
    """Return the bodies of the delivered messages."""
    return [one.body for one in store.get("orders", 0, 0, 100).messages]


def test_timer_messages_are_delivered_in_the_order_of_their_times(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number, seconds in ((1, 9), (2, 3), (3, 6)):
            delivery.send(timed(number, seconds))
        assert delivery.next_due_ms() is not None
        clock.now_ms += 10_000
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 2", b"body 3", b"body 1"]
        assert delivery.next_due_ms() is None


def test_a_restart_keeps_waiting_timers_and_repeats_no_delivery(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        delivery.send(timed(1, 60))
        delivery.send(timed(2, 3))
        clock.now_ms += 5_000
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 2"]
        crash(store)
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 2"]
        clock.now_ms += 60_000
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 2", b"body 1"]
    with MessageStore.open(root, SMALL, clock=clock) as store:
        assert Delivery(store).next_due_ms() is None


def test_a_timer_message_can_be_cancelled(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        delivery.send(timed(1, 5))
        delivery.send(timed(2, 5))
        delivery.send(timed(3, 5, TIMER_DEL_UNIQKEY="orders_U1"))
        clock.now_ms += 10_000
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 2"]


def test_a_timer_message_is_delivered_after_a_full_disk(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        delivery.send(timed(1, 3))
        delivery.send(timed(2, 4))
        clock.now_ms += 5_000
        with monkeypatch.context() as full:

            def refuse(_: object) -> None:
                raise DiskFullError("4096 bytes of free disk are needed for a new file, found 0")

            full.setattr(store, "put", refuse)
            for _ in range(2):
                with pytest.raises(DiskFullError):
                    delivery.deliver_due(clock.now_ms)
        delivery.deliver_due(clock.now_ms)
        assert bodies(store) == [b"body 1", b"body 2"]
