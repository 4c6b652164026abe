"""The configuration that a store had at the restored time, from the lake."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from commitlake.connectors.formats.rocketmq.topic_configs import TABLE
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.store_config import GROUP, SETTING, TOPIC, read_store_config
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.restore.errors import RestoreError
from commitlake.pipelines.verify.observed_delays import archived_levels
from commitlake.schemas.layouts.numbers import INT32_MAX, int_within
from commitlake.schemas.remoting.fastjson import serialize_fastjson

_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """The configuration of a store, as far as it is in the lake.

    Attributes:
        topics: Entries of topics.json by topic.
        groups: Entries of subscriptionGroup.json by group.
        settings: Sizes of files, and delay levels, by their names in `store_config`.
    """

    topics: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def segment_size(self) -> int | None:
        """Size of a CommitLog segment in bytes; None if the lake does not have it."""
        return self._number("segment_size_bytes")

    @property
    def compacted_topics(self) -> frozenset[str]:
        """Topics with `cleanup.policy=COMPACTION`."""
        attributes = {
            topic: config.get("attributes") for topic, config in self.topics.items() if isinstance(config, dict)
        }
        return frozenset(
            topic for topic, each in attributes.items() if isinstance(each, dict) and each.get(_POLICY) == _COMPACTION
        )

    def complete(self, wanted: RequestedSettings) -> RequestedSettings:
        """Return the user's settings, completed by those in the lake."""
        return replace(
            wanted,
            queue_file_size=wanted.queue_file_size or self._number("queue_file_size_bytes"),
            batch_file_size=wanted.batch_file_size or self._number("batch_queue_file_size_bytes"),
            index_slots=wanted.index_slots or self._number("index_slots"),
            index_entries=wanted.index_entries or self._number("index_entries"),
            delay_levels_ms=wanted.delay_levels_ms or self._delay_levels(),
        )

    def topics_file(self, timestamp: int) -> bytes:
        """Return the content of topics.json.

        Args:
            timestamp: Store time of the newest record, ms; it becomes the version of the file.
        """
        version = {"counter": 1, "stateVersion": 0, "timestamp": timestamp}
        return serialize_fastjson({"dataVersion": version, TABLE: dict(sorted(self.topics.items()))}).encode()

    def _number(self, name: str) -> int | None:
        return int_within(self.settings.get(name), 1, INT32_MAX)

    def _delay_levels(self) -> tuple[int, ...] | None:
        return archived_levels(self.settings)


def read_known_config(lake: Lake, broker: str, at: datetime.datetime | None) -> KnownConfig:
    """Read a store's configuration.

    Args:
        broker: Name of the store.
        at: The restored time; None for the newest configuration.

    Returns:
        The configuration; empty if the lake was created without it.

    Raises:
        RestoreError: The table contains invalid JSON.
        QueryError: The table cannot be read.
    """
    config = read_store_config(lake, broker, at)
    try:
        return KnownConfig(config.of_kind(TOPIC), config.of_kind(GROUP), config.of_kind(SETTING))
    except (ValueError, RecursionError) as error:
        raise RestoreError(
            f"table store_config: expected JSON in the column value of {broker}, found {error}"
        ) from None
