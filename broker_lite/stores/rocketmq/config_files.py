"""Files under `config/`: topics, groups, and offsets, as RocketMQ or BoltMQ writes and reads them.

    topics.json             topics, with their numbers of queues
    subscriptionGroup.json  consumer groups, with their limits of retries
    consumerOffset.json     the next message to consume, for each topic@group and queue
    delayOffset.json        the next message to deliver, for each delay level

Each file has a `.bak` with its previous version, which is read if the file itself is missing or invalid. Fields of
RocketMQ that this store does not know are kept. BoltMQ's format is read in any store, and written in a store of its
dialect; in memory the format is RocketMQ's. Source: ConfigManager, TopicConfigManager, SubscriptionGroupManager,
ConsumerOffsetManager, ScheduleMessageService (5.5.0).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from commitlake.broker_lite.stores.engine.table_and_checkpoint_files import SavedTable
from commitlake.schemas.layouts.boltmq import config_conversion as boltmq
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, INT64_MAX, INT64_MIN, int_in_range, parse_int
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, QUEUE_TYPE, has_batch_queues
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import (
    DLQ_PREFIX,
    GROUPS_TABLE,
    HALF_TOPIC,
    OFFSETS_FILES,
    OP_TOPIC,
    RETRY_PREFIX,
    TOPICS_TABLE,
    Kind,
    kind_of,
    split_offset_key,
)
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson
from commitlake.schemas.safe_store_files import newest_file_name

FOLDER = "config"


class ConfigFile(SavedTable):
    """Config file whose JSON is kept in memory; several threads may use it.

    Attributes:
        document: content of the file.
    """

    name: str
    table: str
    other_name: str | None = None
    """Name that other brokers use; read if there is no file of its own name."""

    def __init__(self, root: Path, clock: Callable[[], int], dialect: Dialect = ROCKETMQ) -> None:
        """Read the file of the store at `root`.

        Args:
            root: folder of the store.
            clock: returns ms since 1970.
            dialect: dialect in which the file is written.

        Raises:
            StoreError: if neither the file nor its `.bak` can be read.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
        """
        super().__init__(root, FOLDER, self.name)
        self._clock = clock
        self._dialect = dialect
        others = () if self.other_name is None else (self.path.with_name(self.other_name),)
        self.document = self._read_table(self._parse_document, *others) or {}
        version = {"counter": 0, "stateVersion": 0, "timestamp": clock()}
        # Fields of the file win over the defaults; a field that a file lacks would otherwise fail at the next change.
        self.document["dataVersion"] = version | self.document.get("dataVersion", {})
        self.document[self.table] = self._normalize_keys(self.document.get(self.table, {}))
        # A store without the file gets one at the first save, as with a real broker.
        self.is_changed = not self._file.exists

    def _parse_document(self, data: bytes) -> dict[str | int, Any]:
        try:
            document = parse_fastjson(data.decode())
            document = self._from_boltmq(document) if isinstance(document, dict) else document
            self._check_document(document)
        except ValueError as error:
            raise ValueError(f"expected a config file in RocketMQ's format, found other content: {error}") from None
        return dict(document)

    def _check_document(self, document: Any) -> None:
        for field, is_entry in (("dataVersion", is_int64), (self.table, self._is_valid_entry)):
            table = document.get(field, {}) if isinstance(document, dict) else None
            if not isinstance(table, dict) or not all(map(is_entry, table.values())):
                raise ValueError(
                    f"expected a JSON object with valid entries in the field {field!r}, found something else"
                )
        if not self._dialect.is_rocketmq:
            try:
                json.dumps(document)
            except TypeError as error:
                # fastjson accepts keys that are not strings; such a file could be read, but not be written again.
                raise ValueError(f"expected JSON whose keys are all texts, found other keys: {error}") from None

    def _is_valid_entry(self, value: Any) -> bool:
        """Return whether a value is valid as an entry of the file's main table."""
        raise NotImplementedError

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        """Return a document in RocketMQ's format, converted if it is in BoltMQ's format."""
        return document

    def _to_boltmq(self) -> dict[Any, Any]:
        """Return the document in BoltMQ's format."""
        raise NotImplementedError

    def _normalize_keys(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """Return the main table with keys converted to the types used in memory, such as integers."""
        return table

    @property
    def entries(self) -> dict[Any, Any]:
        """Main table of the file, by name."""
        entries: dict[Any, Any] = self.document[self.table]
        return entries

    def put(self, name: str, entry: dict[str, Any]) -> None:
        """Insert or replace an entry of the table."""
        with self._guard:
            self.entries[name] = entry
            self.mark_changed()

    def remove_entry(self, name: str) -> bool:
        """Remove an entry of the table, and return whether it existed."""
        with self._guard:
            if self.entries.pop(name, None) is None:
                return False
            self.mark_changed()
            return True

    def mark_changed(self) -> None:
        """Update the version of the document, and note that it must be saved."""
        version = self.document["dataVersion"]
        version["counter"] += 1
        version["timestamp"] = self._clock()
        self.is_changed = True

    def _serialize(self) -> bytes:
        if self._dialect.is_rocketmq:
            return serialize_fastjson(self.document).encode()
        return json.dumps(self._to_boltmq(), ensure_ascii=False, separators=(",", ":")).encode()


def is_int64(value: Any) -> bool:
    """Return whether a value is a 64-bit integer."""
    return int_in_range(value, INT64_MIN, INT64_MAX) is not None


DEFAULT_TOPIC_QUEUES = 4
"""Number of queues of a topic that its first message creates: a producer's default."""
SCHEDULE_QUEUES = 18
MAX_QUEUES = 1024
"""Maximum number of queues of a topic; RocketMQ has no limit, but each queue is a folder."""
READ_AND_WRITE = 6
DEFAULT_RETRY_QUEUES = 1
DEFAULT_RETRY_MAX_TIMES = 16
_logger = logging.getLogger(__name__)
_ONE_QUEUE = (RETRY_PREFIX, DLQ_PREFIX, HALF_TOPIC, OP_TOPIC)


class Topics(ConfigFile):
    """Topics of a store, in `topics.json`."""

    name = "topics.json"
    other_name = boltmq.OLD_TOPICS_NAME
    table = TOPICS_TABLE

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        return boltmq.topics_from_boltmq(document)

    def _to_boltmq(self) -> dict[Any, Any]:
        return boltmq.topics_to_boltmq(self.document)

    def _is_valid_entry(self, value: Any) -> bool:
        return isinstance(value, dict) and is_int64(value.get("readQueueNums", 0))

    def is_batch(self, topic: str) -> bool:
        """Return whether the topic's queues are BatchConsumeQueues."""
        entry = self.entries.get(topic)
        return entry is not None and has_batch_queues(entry.get("attributes"))

    def create_batch_topic(self, topic: str, queue_count: int) -> None:
        """Create a topic whose queues are BatchConsumeQueues."""
        self.create(topic, queue_count)
        self.put(topic, self.entries[topic] | {"attributes": {QUEUE_TYPE: BATCH_QUEUE_TYPE}})

    def ensure_queue(self, topic: str, queue_id: int = 0) -> None:
        """Ensure that the topic has at least this queue, because brokers serve only queues of known topics.

        An impossible queue id is ignored: it would prevent clients from reading the topic's settings.
        """
        config = self.entries.get(topic)
        if config is not None and queue_id < config.get("readQueueNums", 0):
            return
        if queue_id >= MAX_QUEUES:
            _logger.error("%s: queue %d is not served, expected at most %d queues", topic, queue_id, MAX_QUEUES)
            return
        self.create(topic, max(queue_id + 1, _default_queue_count(topic)))

    def queue_count(self, topic: str) -> int:
        """Return the number of a topic's queues: the maximum of read and write queues; 0 for an unknown topic."""
        config = self.entries.get(topic, {})
        counts = (int_in_range(config.get(name), 0, INT32_MAX) for name in ("readQueueNums", "writeQueueNums"))
        return max(count or 0 for count in counts)

    def create(self, topic: str, queue_count: int) -> None:
        """Create a topic with a number of queues, or change the number of an existing topic."""
        with self._guard:
            fields = {
                "attributes": {},
                "order": False,
                "perm": READ_AND_WRITE,
                "readQueueNums": queue_count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": queue_count,
            }
            known = self.entries.get(topic, {})
            # Settings of an existing topic stay, except its queues.
            self.entries[topic] = fields | known | {"readQueueNums": queue_count, "writeQueueNums": queue_count}
            self.mark_changed()


def _default_queue_count(topic: str) -> int:
    if kind_of(topic) is Kind.DELAY:
        return SCHEDULE_QUEUES
    return 1 if topic.startswith(_ONE_QUEUE) else DEFAULT_TOPIC_QUEUES


class GroupLimits(NamedTuple):
    """Limits for the retries of a group: number of retry queues, and maximum number of retries."""

    retry_queues: int
    retry_max_times: int


class Groups(ConfigFile):
    """Consumer groups of a store, in `subscriptionGroup.json`."""

    name = "subscriptionGroup.json"
    table = GROUPS_TABLE

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        return boltmq.groups_from_boltmq(document)

    def _to_boltmq(self) -> dict[Any, Any]:
        return boltmq.groups_to_boltmq(self.document)

    def _is_valid_entry(self, value: Any) -> bool:
        limits = ("retryQueueNums", "retryMaxTimes")
        return isinstance(value, dict) and all(is_int64(value.get(limit, 0)) for limit in limits)

    def find_or_create(self, group: str) -> GroupLimits:
        """Return a group's retry limits; create the group with RocketMQ's defaults if it does not exist."""
        if group not in self.entries:
            self.create(group)
        config = self.entries[group]
        return GroupLimits(
            config.get("retryQueueNums", DEFAULT_RETRY_QUEUES), config.get("retryMaxTimes", DEFAULT_RETRY_MAX_TIMES)
        )

    def create(
        self,
        group: str,
        *,
        retry_queue_count: int = DEFAULT_RETRY_QUEUES,
        retry_max_times: int = DEFAULT_RETRY_MAX_TIMES,
    ) -> None:
        """Create a group, or change the limits of an existing one."""
        with self._guard:
            fields = {
                "attributes": {},
                "brokerId": 0,
                "consumeBroadcastEnable": True,
                "consumeEnable": True,
                "consumeFromMinEnable": True,
                "consumeMessageOrderly": False,
                "consumeTimeoutMinute": 15,
                "groupName": group,
                "groupRetryPolicy": {"type": "CUSTOMIZED"},
                "groupSysFlag": 0,
                "notifyConsumerIdsChangedEnable": True,
                "retryMaxTimes": retry_max_times,
                "retryQueueNums": retry_queue_count,
                "whichBrokerWhenConsumeSlowly": 1,
            }
            limits = {"retryMaxTimes": retry_max_times, "retryQueueNums": retry_queue_count}
            self.entries[group] = fields | self.entries.get(group, {}) | limits
            self.mark_changed()


class ConsumerOffsets(ConfigFile):
    """Consumer offsets, in `consumerOffset.json` or, with `enableLmq`, in a newer `lmqConsumerOffset.json`."""

    table = boltmq.OFFSETS
    is_dated = True

    def __init__(
        self, root: Path, clock: Callable[[], int], dialect: Dialect = ROCKETMQ, groups: Collection[str] = ()
    ) -> None:
        """Read the file; the names of known groups help to split ambiguous keys into topic and group."""
        self._known_groups = groups
        self.name = newest_file_name(root / FOLDER, OFFSETS_FILES)
        super().__init__(root, clock, dialect)
        self._count = sum(map(len, self.entries.values()))

    @property
    def count(self) -> int:
        """Number of stored offsets."""
        return self._count

    def _from_boltmq(self, document: dict[Any, Any]) -> dict[Any, Any]:
        return boltmq.offsets_from_boltmq(document, self._known_groups)

    def _to_boltmq(self) -> dict[Any, Any]:
        return boltmq.offsets_to_boltmq(self.document)

    def _is_valid_entry(self, value: Any) -> bool:
        return isinstance(value, dict) and all(map(is_int64, value.values()))

    def _normalize_keys(self, table: dict[Any, Any]) -> dict[Any, Any]:
        return {key: _convert_keys_to_int(offsets) for key, offsets in table.items()}

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the queue offset of the next message for the group, or None if it has no offset."""
        offset: int | None = self.entries.get(f"{topic}@{group}", {}).get(queue_id)
        return offset

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in a queue: it has consumed all messages before it."""
        with self._guard:
            offsets = self.entries.setdefault(f"{topic}@{group}", {})
            self._count += queue_id not in offsets
            offsets[queue_id] = offset
            self.mark_changed()

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, client: Host) -> None:  # noqa: ARG002
        """Set a group's offset in a queue: it has consumed all messages before it; the client is not recorded."""
        self.commit(topic, group, queue_id, offset)

    def mark_delivered(self, topic: str, group: str, queue_id: int, offset: int, end_offset: int) -> None:
        """Do nothing, because RocketMQ does not record which messages were delivered to clients."""

    def remove_if(self, is_deleted: Callable[[str, str], bool]) -> None:
        """Remove the offsets whose topic or group was deleted."""
        with self._guard:
            for key in [key for key in self.entries if is_deleted(*split_offset_key(key))]:
                self._count -= len(self.entries.pop(key))
                self.mark_changed()


class DelayOffsets(ConfigFile):
    """Offsets of the messages to deliver next, by delay level, in `delayOffset.json`."""

    name = "delayOffset.json"
    table = boltmq.OFFSETS
    is_dated = True

    def _to_boltmq(self) -> dict[Any, Any]:
        return boltmq.delay_offsets_to_boltmq(self.document)

    def _is_valid_entry(self, value: Any) -> bool:
        return is_int64(value)

    def _normalize_keys(self, table: dict[Any, Any]) -> dict[Any, Any]:
        return _convert_keys_to_int(table)

    def get(self, level: int) -> int:
        """Return the queue offset of the next message of a level that must be delivered."""
        offset: int = self.entries.get(level, 0)
        return offset

    def set(self, level: int, offset: int) -> None:
        """Set the queue offset of the next message to deliver in a level's queue."""
        with self._guard:
            self.entries[level] = offset
            self.mark_changed()


def _convert_keys_to_int(table: dict[Any, Any]) -> dict[Any, Any]:
    """Convert keys to integers, because other tools than RocketMQ write queue ids and levels in quotes."""
    return {_to_int_key(key): value for key, value in table.items()}


def _to_int_key(key: object) -> object:
    number = parse_int(key, 0, INT32_MAX) if isinstance(key, str) else None
    return key if number is None else number


class ConfigFiles:
    """All config files of a store: topics, groups, consumer offsets and delay offsets."""

    def __init__(self, root: Path, clock: Callable[[], int], dialect: Dialect = ROCKETMQ) -> None:
        """Read the files of the store at `root`, to be written in its dialect.

        Raises:
            StoreError: if a file and its `.bak` cannot be read.
        """
        self.topics = Topics(root, clock, dialect)
        self.groups = Groups(root, clock, dialect)
        # After the groups: BoltMQ's keys of offsets can only be split with their names.
        self.consumer_offsets = ConsumerOffsets(root, clock, dialect, self.groups.entries)
        self.delay_offsets = DelayOffsets(root, clock, dialect)
        self._files: tuple[ConfigFile, ...] = (self.topics, self.groups, self.consumer_offsets, self.delay_offsets)

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Write the files that have changed, and leave all as they are meanwhile."""
        with ExitStack() as stack:
            for file in self._files:
                stack.enter_context(file.saved())
            yield

    def save_if_changed(self) -> None:
        """Write the files that have changed."""
        for file in self._files:
            file.save_if_changed()

    def save(self) -> None:
        """Write all files, as a broker does when it stops."""
        for file in self._files:
            file.save()
