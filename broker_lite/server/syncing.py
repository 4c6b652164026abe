"""Putting the log on the disk beside the event loop: one sync for everything that waits for it (group commit)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from commitlake.broker_lite.broker.interfaces import BrokerStore
from commitlake.broker_lite.stores.engine.errors import StoreError


class Syncing:
    """A thread that syncs whenever somebody waits."""

    def __init__(
        self,
        store: BrokerStore,
        loop: asyncio.AbstractEventLoop,
        synced: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Begin.

        Args:
            store: whose log.
            loop: where the callbacks are called.
            synced: is told up to which offset the log is on the disk.
            failed: is told why it is not.
        """
        self._store = store
        self._loop = loop
        self._synced = synced
        self._failed = failed
        self._wanted = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="broker-sync", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Have the log put on the disk soon."""
        self._wanted.set()

    def stop(self) -> None:
        """End the thread, after what was requested."""
        self._is_stopped = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            self._wanted.wait()
            self._wanted.clear()
            try:
                end = self._store.sync_log()
            except (StoreError, OSError) as error:
                self._loop.call_soon_threadsafe(self._failed, error)
            else:
                self._loop.call_soon_threadsafe(self._synced, end)
