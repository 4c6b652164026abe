"""State of a log's writer that readers and flushes need."""

from __future__ import annotations

import threading

from commitlake.broker_lite.stores.engine.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.progress import LogProgress


class LogWriter:
    """Progress of a store's writer, and whether it accepts writes; several threads may write, one at a time.

    Attributes:
        lock: held while files are written or read.
        failure: error that made the store unusable; None for a usable store.
        is_closed: True if it accepts no more messages.
        last: progress after the last write.
        arrived: (topic, queue id) pairs that have received messages since the set was last emptied.
    """

    def __init__(self, last: LogProgress) -> None:
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        self.is_closed = False
        self.last = last
        self.arrived: set[tuple[str, int]] = set()

    def check_writable(self) -> None:
        """Check that the store accepts writes; the lock is held.

        Raises:
            StoreUnusableError: if it is closed, or a write failed before.
        """
        if self.is_closed:
            raise StoreUnusableError("expected an open store, found a closed one")
        if self.failure is not None:
            self.check_usable()

    def fail(self, error: BaseException, found: str) -> StoreUnusableError:
        """Mark the store as unusable, because queues or index lack a message of the log, and return the error to raise.

        The next message would get the same queue offset; only recovery can make log and queues consistent again.
        """
        self.failure = error
        return StoreUnusableError(f"{found}: {error}")

    def check_usable(self) -> None:
        """Check that no write has failed.

        Raises:
            StoreUnusableError: if a write or a sync has failed before.
        """
        if self.failure is not None:
            raise StoreUnusableError(f"the store must be opened again after an error: {self.failure}") from self.failure
