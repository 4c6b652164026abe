"""Queue locks, which let a single consumer of a group read a queue in order.

A lock expires after a minute, and consumers renew it every 20 s. Locks are not stored on disk. Source:
RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commitlake.broker_lite.broker.limits import MAX_LOCKS, check_limit
from commitlake.schemas.remoting.routes import MessageQueue

LIFETIME_MS = 60_000


class _Lock(NamedTuple):
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Locks on queues, by consumer group."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock the free queues and renew the client's own locks; return the queues that the client now holds.

        Raises:
            LimitError: if there would be too many locks; no lock is taken then.
        """
        queues = list(queues)
        known = self._locks.get(group, {})
        check_limit("locks", MAX_LOCKS, self._count + len(set(queues) - known.keys()))
        locks = self._locks.setdefault(group, known)
        before = len(locks)
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now_ms - lock.renewed_ms > LIFETIME_MS:
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        self._count += len(locks) - before
        if not locks:
            del self._locks[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the given queues that the client has locked."""
        locks = self._locks.get(group, {})
        for queue in queues:
            if (lock := locks.get(queue)) and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._locks.pop(group, None)

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Return whether any queue of the group is locked."""
        return any(now_ms - lock.renewed_ms <= LIFETIME_MS for lock in self._locks.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Remove the locks that have expired."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if now_ms - lock.renewed_ms > LIFETIME_MS]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]
