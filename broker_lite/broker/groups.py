"""Consumer groups of a broker, stored in `subscriptionGroup.json`. Source: SubscriptionGroupManager."""

from __future__ import annotations

import logging
from typing import Any

from commitlake.broker_lite.broker.limits import check_limit
from commitlake.broker_lite.stores.engine.topic_names import VALID_NAME
from commitlake.broker_lite.stores.rocketmq.config_files import Groups
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.configs import DataVersion, SubscriptionGroupConfig
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.json_fields import from_json, to_json

MAX_GROUP_LENGTH = 255
_logger = logging.getLogger(__name__)


def is_valid_group(name: str) -> bool:
    """Return whether a broker accepts a name for a consumer group."""
    return VALID_NAME.fullmatch(name) is not None and len(name) <= MAX_GROUP_LENGTH


class GroupTable:
    """Consumer groups by name, with their settings."""

    def __init__(self, config: Groups, *, auto_create: bool, max_groups: int) -> None:
        self._config = config
        self._max_groups = max_groups
        self._auto_create = auto_create
        self._known: dict[str, tuple[Any, SubscriptionGroupConfig | None]] = {}

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group's settings; create the group first if it is missing and may be created.

        Raises:
            LimitError: if there are too many groups.
        """
        entry = self._config.entries.get(name)
        if entry is None:
            if not self.may_make(name):
                return None
            self.check_room(1)
            self._config.create(name)
            entry = self._config.entries[name]
        known = self._known.get(name)
        if known is None or known[0] is not entry:
            # The store replaces an entry whenever it changes one.
            known = self._known[name] = (entry, _parsed(name, entry))
        return known[1]

    def may_make(self, name: str) -> bool:
        """Return whether a client's request may create a group of this name."""
        return self._auto_create and is_valid_group(name) and not is_system_group(name)

    def check_room(self, count: int) -> None:
        """Raise an error if more groups would exceed the limit.

        Raises:
            LimitError: if `count` more groups exceed the limit.
        """
        check_limit("groups (see --max-groups)", self._max_groups, len(self._config.entries) + count)

    def has(self, name: str) -> bool:
        """Return whether the group exists, without creating it."""
        return name in self._config.entries

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or update a group.

        Raises:
            LimitError: if there are too many groups.
        """
        self.check_room(not self.has(config.group_name))
        self._config.create(
            config.group_name, retry_queues=config.retry_queue_nums, retry_max_times=config.retry_max_times
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
        """Version of the table."""
        return from_json(DataVersion, self._config.document["dataVersion"])


def _parsed(name: str, entry: Any) -> SubscriptionGroupConfig | None:
    """Parse a group's entry; log an error and return None if the entry is invalid."""
    try:
        return from_json(SubscriptionGroupConfig, {"groupName": name} | entry)
    except BodyError as error:
        _logger.error("group %.200s is not served: its entry in subscriptionGroup.json is invalid: %s", name, error)
        return None
