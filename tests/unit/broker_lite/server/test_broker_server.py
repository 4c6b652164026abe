"""Tests of a broker's background work: checks of the disk, and cleaning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.server.broker_server import Address, BrokerServer, ServerOptions
from commitlake.broker_lite.stores.rocketmq import MessageStore
from tests.servers.process import free_ports
from tests.support.message_stores import SMALL

SECONDS = 30


def do_nothing() -> None:
    """Do nothing, as the last step."""


def serve_until(store: MessageStore, condition: Callable[[BrokerServer], bool], *steps: Callable[[], None]) -> None:
    """Run a server until a condition holds; then for each step, execute it and wait for the condition again."""

    async def run() -> None:
        server = BrokerServer(store, ServerOptions(Address("127.0.0.1", free_ports(1))))
        running = asyncio.get_running_loop().create_task(server.run(lambda: None))
        try:
            async with asyncio.timeout(SECONDS):
                for step in (*steps, do_nothing):
                    while not condition(server):
                        await asyncio.sleep(0.01)
                    step()
        finally:
            server._stop.set()
            await running

    asyncio.run(run())


def test_a_full_disk_stops_sends_before_the_next_cleaning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.server.broker_server.HOUSEKEEPING_SECONDS", 3600)
    wanted = [True]
    with MessageStore.open(root, SMALL) as store:
        used = [10]
        monkeypatch.setattr(store._retention, "_used", lambda _: used[0])

        def change(percent: int, *, is_writable: bool) -> None:
            used[0], wanted[0] = percent, is_writable

        serve_until(
            store,
            lambda server: server._dispatcher.broker.is_writable == wanted[0],
            lambda: change(99, is_writable=False),
            lambda: change(10, is_writable=True),
        )


def test_cleaning_continues_after_errors(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.server.broker_server.HOUSEKEEPING_SECONDS", 0.01)
    turns = threading.Semaphore(0)

    def fail(_: float) -> None:
        turns.release()
        raise RuntimeError("a defect")

    with MessageStore.open(root, SMALL) as store:
        monkeypatch.setattr(store, "delete_expired_files", fail)
        serve_until(store, lambda _: turns.acquire(blocking=False), do_nothing, do_nothing)
    assert "cannot delete expired files" in caplog.text
