"""Work that a server does beside its connections: slices of long requests, and flushes of the log.

Slices run on the event loop, between the turns of the connections. Flushes run in a thread, and one flush serves all
requests that wait for it (group commit).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from commitlake.broker_lite.broker.slice_scheduler import SliceScheduler
from commitlake.broker_lite.broker.store_interfaces import BrokerStore
from commitlake.broker_lite.errors import StoreError


class SliceTimer:
    """Timer in an event loop that runs slices of long work, one after another, while any work remains."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slices: SliceScheduler, turn: Callable[[], bool]) -> None:
        """Connect a scheduler of long work to an event loop.

        Args:
            slices: the scheduler.
            turn: function that runs one slice, and returns whether more work remains; it raises no exception.
        """
        self._loop = loop
        self._slices = slices
        self._turn = turn
        self._next: asyncio.Handle | None = None
        slices.wake = self._schedule_next_slice

    def _schedule_next_slice(self) -> None:
        delay = self._slices.seconds_to_next_slice
        if self._next is not None:
            if delay or not isinstance(self._next, asyncio.TimerHandle):
                return
            self._next.cancel()  # new work need not wait for the end of a pause
        self._next = self._loop.call_later(delay, self._run_slice) if delay else self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._next = None
        if self._turn():
            self._schedule_next_slice()


class LogSyncTask:
    """Thread that flushes the log whenever this is requested."""

    def __init__(
        self,
        store: BrokerStore,
        loop: asyncio.AbstractEventLoop,
        synced: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Start the thread that flushes the log on request.

        Args:
            store: store whose log is flushed.
            loop: event loop in which the callbacks run.
            synced: called with the physical offset up to which the log is flushed.
            failed: called with the error if a flush fails.
        """
        self._store = store
        self._loop = loop
        self._synced = synced
        self._failed = failed
        self._wanted = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run_requested_syncs, name="broker-sync", daemon=True)
        self._thread.start()

    def request_sync(self) -> None:
        """Request a flush of the log."""
        self._wanted.set()

    def stop(self) -> None:
        """Stop the thread, after it has completed a requested flush."""
        self._is_stopped = True
        self._wanted.set()
        self._thread.join()

    def _run_requested_syncs(self) -> None:
        while not self._is_stopped:
            self._wanted.wait()
            self._wanted.clear()
            try:
                end = self._store.sync_log()
            except (StoreError, OSError) as error:
                self._loop.call_soon_threadsafe(self._failed, error)
            else:
                self._loop.call_soon_threadsafe(self._synced, end)
