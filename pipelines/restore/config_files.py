"""Files in `config/` that do not follow from the log: offsets of consumer groups and delay levels.

    consumerOffset.json     from a given file, limited to the restored queues; empty without one. Light queues have
                            offsets, too, which may be in the file's lmqOffsetTable
    lmqConsumerOffset.json  the same, if there are light queues: a broker with enableLmq reads this file instead
    delayOffset.json        delays that were due ten seconds before the end of the log are done; later ones are not
    subscriptionGroup.json  the groups in the lake with their settings; other groups that have offsets or retries get
                            the default settings of a broker
    timercheck              timers before the first one that was not due at the end of the log are done

A message whose delay ended in the last ten seconds may be delivered a second time. The same happens after a broker was
killed, because it saves its progress every ten seconds only. The rebuild writes topics.json.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.store_config import GROUP, SETTING, TOPIC, read_store_config
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.verify.observed_delays import read_archived_delays
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.boltmq.config_conversion import offsets_from_boltmq
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, INT32_MIN, INT64_MAX, int_in_range, require_int
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, parse_entry
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_QUEUE_ID, is_valid_folder_name
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint, serialize_timer_checkpoint
from commitlake.schemas.layouts.rocketmq.topics import (
    GROUPS_TABLE,
    LIGHT_PREFIX,
    RETRY_PREFIX,
    TOPICS_TABLE,
    split_offset_key,
)
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson
from commitlake.schemas.segment_files import files_by_start

_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
DELIVERY_MS = 10_000
"""Interval at which a broker saves which delays are done."""
_OFFSETS, _LIGHT_OFFSETS = "offsetTable", "lmqOffsetTable"
_GROUP = {
    "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}  # fmt: skip
Table = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """The part of a store's configuration that the lake has recorded.

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
        return self._number_setting("segment_size_bytes")

    @property
    def compacted_topics(self) -> frozenset[str]:
        """Topics with `cleanup.policy=COMPACTION`."""
        attributes = {
            topic: config.get("attributes") for topic, config in self.topics.items() if isinstance(config, dict)
        }
        return frozenset(
            topic for topic, each in attributes.items() if isinstance(each, dict) and each.get(_POLICY) == _COMPACTION
        )

    def complete_settings(self, requested_settings: RequestedSettings) -> RequestedSettings:
        """Return the user's settings, with missing ones taken from the lake."""
        return replace(
            requested_settings,
            queue_file_size=requested_settings.queue_file_size or self._number_setting("queue_file_size_bytes"),
            batch_file_size=requested_settings.batch_file_size or self._number_setting("batch_queue_file_size_bytes"),
            index_slots=requested_settings.index_slots or self._number_setting("index_slots"),
            index_entries=requested_settings.index_entries or self._number_setting("index_entries"),
            delay_levels_ms=requested_settings.delay_levels_ms or self._delay_levels(),
        )

    def serialize_topics_file(self, timestamp: int) -> bytes:
        """Return the content of topics.json, with the topics that the lake has recorded.

        Args:
            timestamp: Store time of the newest record, ms; it becomes the version of the file.
        """
        version = {"counter": 1, "stateVersion": 0, "timestamp": timestamp}
        return serialize_fastjson({"dataVersion": version, TOPICS_TABLE: dict(sorted(self.topics.items()))}).encode()

    def _number_setting(self, name: str) -> int | None:
        return int_in_range(self.settings.get(name), 1, INT32_MAX)

    def _delay_levels(self) -> tuple[int, ...] | None:
        return read_archived_delays(self.settings)


def read_known_config(lake: Lake, broker: str, as_of: datetime.datetime | None) -> KnownConfig:
    """Read from the lake what it has recorded of a store's configuration, as of a time.

    Args:
        broker: Name of the store.
        as_of: The restored time; None for the newest configuration.

    Returns:
        The configuration; empty if the lake was created without it.

    Raises:
        UsageError: The table contains invalid JSON.
    """
    config = read_store_config(lake, broker, as_of)
    try:
        return KnownConfig(config.values_of_kind(TOPIC), config.values_of_kind(GROUP), config.values_of_kind(SETTING))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the table store_config: expected JSON in the column value for the broker {broker}, found other text: "
            f"{error}"
        ) from None


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Offsets of consumer groups for a restored store.

    Attributes:
        table: for each `topic@group` and queue, the offset of the next message.
        set_back: how many offsets were after the ends of their queues and are now at those ends.
        left_out: how many offsets belonged to queues without a message in the log.
    """

    table: Table
    set_back: int = 0
    left_out: int = 0

    @property
    def groups(self) -> set[str]:
        """All groups that have an offset."""
        return {split_offset_key(key)[1] for key in self.table}


def parse_offsets(data: bytes, file_name: str) -> Table:
    """Parse a consumerOffset.json of RocketMQ or BoltMQ, or RocketMQ's lmqConsumerOffset.json.

    Raises:
        UsageError: if the text is not such a file.
    """
    try:
        document = parse_fastjson(data)
        # Light queues have one queue for each topic and group, so the file has no queue ids.
        light = {key: {LIGHT_QUEUE_ID: offset} for key, offset in document.get(_LIGHT_OFFSETS, {}).items()}
        table = offsets_from_boltmq(document)[_OFFSETS] | light
        parsed = {
            key: {_parse_queue_id(queue): offset for queue, offset in queues.items()} for key, queues in table.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f'{file_name}: expected a consumerOffset.json, {{"{_OFFSETS}":{{"topic@group":{{0:17}}}}}}'
        ) from None
    for key, queues in parsed.items():
        for queue, offset in queues.items():
            if "@" not in key or int_in_range(offset, 0, INT64_MAX) is None:
                raise UsageError(
                    f"{file_name}: expected topic@group, and offsets of at least 0 for its queues, found {key!r} and "
                    f"{offset!r} for queue {queue}"
                )
    return parsed


def _parse_queue_id(key: object) -> int:
    """Parse a queue id, which JSON may have as a number or as a text."""
    return require_int(str(key), "queue", INT32_MIN, INT32_MAX)


def limit_to_queue_ranges(offsets_table: Table, queue_ends: Mapping[tuple[str, int], int]) -> GroupOffsets:
    """Limit the offsets of consumer groups to the ranges that the restored queues have.

    Args:
        offsets_table: from `parse_offsets`.
        queue_ends: for each topic and queue with a message, the offset after its last message.
    """
    fitting: Table = {}
    set_back = left_out = 0
    for key, queues in offsets_table.items():
        topic, _ = split_offset_key(key)
        for queue, offset in queues.items():
            end = queue_ends.get((topic, queue))
            if end is None:
                left_out += 1
                continue
            # An offset after the restored end would skip messages that a broker stores there later.
            set_back += offset > end
            fitting.setdefault(key, {})[queue] = min(offset, end)
    return GroupOffsets(fitting, set_back, left_out)


def read_light_queue_ends(store_folder: Path, offsets_table: Table) -> dict[tuple[str, int], int]:
    """Return the end offset of each light queue (LMQ) of a restored store, read from its ConsumeQueue files.

    Args:
        store_folder: the folder of the store, with its queue files.
        offsets_table: offsets of groups; only light queues in it are read.
    """
    ends = {}
    for topic in {split_offset_key(key)[0] for key in offsets_table}:
        folder = store_folder / "consumequeue" / topic / str(LIGHT_QUEUE_ID)
        files = files_by_start(folder, trusted_root=store_folder) if is_valid_folder_name(topic) else {}
        for start, name in sorted(files.items()):
            data = (folder / name).read_bytes()
            used = [at for at in range(0, len(data), ENTRY.size) if parse_entry(data, at).size]
            if used:
                ends[topic, LIGHT_QUEUE_ID] = (start + used[-1]) // ENTRY.size + 1
    return ends


def make_timer_checkpoint(queue_offset: int, timestamp: int) -> bytes:
    """Return a file config/timercheck that makes the broker read the timer topic again from an offset.

    Args:
        queue_offset: offset of the first message of the timer topic that may still be waiting.
        timestamp: store time of the newest record, ms; it becomes the version of the file.
    """
    checkpoint = TimerCheckpoint(
        last_timer_queue_offset=queue_offset, master_timer_queue_offset=queue_offset, timestamp=timestamp, counter=1
    )
    return serialize_timer_checkpoint(checkpoint)


def serialize_config_files(
    offsets: GroupOffsets,
    topics: Iterable[str],
    delays: Mapping[int, int],
    timestamp: int,
    known_groups: Mapping[str, Any],
) -> dict[str, bytes]:
    """Return the content of each configuration file of the restored store, by file name.

    Args:
        topics: all topics with a message.
        delays: for each delay level, the offset of the first message that is still to be delivered.
        timestamp: store time of the newest record, ms; it becomes the version of the files.
        known_groups: settings of the groups in the lake.
    """
    groups = offsets.groups | {topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)}
    version = {"counter": 1, "stateVersion": 0, "timestamp": timestamp}
    documents: dict[str, dict[str, Any]] = {
        "consumerOffset.json": {"dataVersion": version, _OFFSETS: offsets.table},
        "delayOffset.json": {"dataVersion": version, _OFFSETS: dict(sorted(delays.items()))},
        "subscriptionGroup.json": {
            "dataVersion": version,
            GROUPS_TABLE: {
                group: known_groups.get(group) or _GROUP | {"groupName": group}
                for group in sorted(groups | set(known_groups))
            },
        },
    }
    return {name: serialize_fastjson(document).encode() for name, document in documents.items()}


def serialize_light_offsets(offsets: GroupOffsets, timestamp: int) -> bytes:
    """Return the content of lmqConsumerOffset.json, in which a light group has one offset, not one per queue.

    Args:
        timestamp: store time of the newest record, ms; it becomes the version of the file.
    """
    table = offsets.table
    light = {key for key in table if split_offset_key(key)[1].startswith(LIGHT_PREFIX)}
    document = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": timestamp},
        _LIGHT_OFFSETS: {key: offset for key in sorted(light) for offset in table[key].values()},
        _OFFSETS: {key: queues for key, queues in table.items() if key not in light},
    }
    return serialize_fastjson(document).encode()
