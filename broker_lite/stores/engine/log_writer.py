"""What whoever writes a store's log keeps for those who read it and put it on the disk."""

from __future__ import annotations

import threading

from commitlake.broker_lite.stores.engine.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.progress import Progress


class LogWriter:
    """How far a store has come, and whether it takes more; several threads may write, one at a time.

    Attributes:
        lock: held while files are written or read.
        failure: what made the store unusable, if anything did.
        is_closed: whether it takes no more messages.
        last: how far it has come.
        arrived: topic and number of the queues that have got messages since somebody emptied it.
    """

    def __init__(self, last: Progress) -> None:
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        self.is_closed = False
        self.last = last
        self.arrived: set[tuple[str, int]] = set()

    def check_writable(self) -> None:
        """Refuse to append to a store that is closed, or not sound; the lock is held.

        Raises:
            StoreUnusableError: if it was closed, or failed before.
        """
        if self.is_closed:
            raise StoreUnusableError("expected an open store, found it closed")
        if self.failure is not None:
            self.check_usable()

    def fail(self, error: BaseException, found: str) -> StoreUnusableError:
        """Make the store unusable: the log has messages that lack what leads to them. Return what to raise.

        The next message would get the same queue offset; recovery alone can bring log and queues together again.
        """
        self.failure = error
        return StoreUnusableError(f"{found}: {error}")

    def check_usable(self) -> None:
        """Refuse to write to a store whose files are not what they should be.

        Raises:
            StoreUnusableError: if a write or a sync failed before.
        """
        if self.failure is not None:
            raise StoreUnusableError(f"expected a sound store, found: {self.failure}") from self.failure
