"""Consumer groups of a broker, stored in `subscriptionGroup.json`, and their locks on queues.

Source: SubscriptionGroupManager, RebalanceLockManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from commitlake.broker_lite.broker.limits import MAX_LOCKS, check_limit
from commitlake.broker_lite.stores.engine.topic_names import VALID_NAME
from commitlake.broker_lite.stores.rocketmq.config_files import Groups
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import from_json, to_json
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, SubscriptionGroupConfig

MAX_GROUP_LENGTH = 255
_logger = logging.getLogger(__name__)
LOCK_LIFETIME_MS = 60_000


def is_valid_group(name: str) -> bool:
    """Return whether a text is valid as the name of a consumer group."""
    return VALID_NAME.fullmatch(name) is not None and len(name) <= MAX_GROUP_LENGTH


class GroupTable:
    """Consumer groups by name, with their settings."""

    def __init__(self, config: Groups, *, auto_create: bool, max_groups: int) -> None:
        self._config = config
        self._max_groups = max_groups
        self._auto_create = auto_create
        self._known: dict[str, tuple[Any, SubscriptionGroupConfig | None]] = {}

    def find_or_create(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group; create the group if it does not exist and may be created automatically.

        Raises:
            CommandError: if there are too many groups.
        """
        entry = self._config.entries.get(name)
        if entry is None:
            if not self.can_auto_create(name):
                return None
            self.check_group_limit(1)
            self._config.create(name)
            entry = self._config.entries[name]
        known = self._known.get(name)
        if known is None or known[0] is not entry:
            # The store replaces an entry whenever it changes one.
            known = self._known[name] = (entry, _parse_entry(name, entry))
        return known[1]

    def can_auto_create(self, name: str) -> bool:
        """Return whether a group of this name may be created automatically."""
        return self._auto_create and is_valid_group(name) and not is_system_group(name)

    def check_group_limit(self, new_group_count: int) -> None:
        """Raise an error if more groups would exceed the limit.

        Raises:
            CommandError: if `new_group_count` more groups exceed the limit.
        """
        check_limit("groups (see --max-groups)", self._max_groups, len(self._config.entries) + new_group_count)

    def has(self, name: str) -> bool:
        """Return whether the group exists, without creating it."""
        return name in self._config.entries

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or update a group.

        Raises:
            CommandError: if there are too many groups.
        """
        self.check_group_limit(not self.has(config.group_name))
        self._config.create(
            config.group_name, retry_queue_count=config.retry_queue_nums, retry_max_times=config.retry_max_times
        )
        self._config.put(config.group_name, self._config.entries[config.group_name] | to_json(config))

    def remove(self, name: str) -> bool:
        """Remove a group, and return whether it existed."""
        self._known.pop(name, None)
        return self._config.remove_entry(name)

    def names(self) -> list[str]:
        """Return the names of all groups."""
        return list(self._config.entries)

    @property
    def data_version(self) -> DataVersion:
        """Version of the group table, which increases with every change."""
        return from_json(DataVersion, self._config.document["dataVersion"])


def _parse_entry(name: str, entry: Any) -> SubscriptionGroupConfig | None:
    """Parse a group's entry; log an error and return None if the entry is invalid."""
    try:
        return from_json(SubscriptionGroupConfig, {"groupName": name} | entry)
    except BodyError as error:
        _logger.error("group %.200s is not served: its entry in subscriptionGroup.json is invalid: %s", name, error)
        return None


class _QueueLock(NamedTuple):
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Locks on queues by consumer group, which let a single consumer of a group read a queue in order.

    A lock expires after a minute, and consumers renew it every 20 s. Locks are not stored on disk.
    """

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _QueueLock]] = {}
        self._count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock the free queues and renew the client's own locks; return the queues that the client now holds.

        Raises:
            CommandError: if there would be too many locks; no lock is taken then.
        """
        queues = list(queues)
        known = self._locks.get(group, {})
        check_limit("locks", MAX_LOCKS, self._count + len(set(queues) - known.keys()))
        locks = self._locks.setdefault(group, known)
        before = len(locks)
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now_ms - lock.renewed_ms > LOCK_LIFETIME_MS:
                locks[queue] = _QueueLock(client_id, now_ms)
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
        return any(now_ms - lock.renewed_ms <= LOCK_LIFETIME_MS for lock in self._locks.get(group, {}).values())

    def remove_expired_locks(self, now_ms: int) -> None:
        """Remove the locks that have expired."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if now_ms - lock.renewed_ms > LOCK_LIFETIME_MS]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]


def system_group_refusal_response(request: Command, group: str) -> Command | None:
    """Return an error response to a request that would change a group of the broker itself; None for other groups.

    The offsets of these groups are the broker's progress in timers and transactions, and setting one makes the next
    start skip waiting messages. RocketMQ allows it.
    """
    if not is_system_group(group):
        return None
    return request.reply(
        ResponseCode.NO_PERMISSION, remark=f"the group[{group}] belongs to the broker, clients may not change it"
    )
