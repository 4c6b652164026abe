"""Writer of a store: it appends to the log, the queue and the index under one lock.

A message gets its queue offset and its position in the log at the same moment, so the order of the log is the order of
every queue. Everything that can be refused is refused before anything is written, including a full disk. A later
failure, such as a disk error, makes the store unusable until it is opened again, because only recovery can make log and
queues consistent again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from commitlake.broker_lite.errors import MessageRefusedError, StoreUnusableError
from commitlake.broker_lite.stores.engine.log_writer import LogProgress, LogWriter
from commitlake.broker_lite.stores.rocketmq.message_preparation import MessagePreparer, PreparedMessage, check_batch
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.queues import AnyQueue
from commitlake.broker_lite.stores.rocketmq.store_files import StoreFiles
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import (
    BATCH_QUEUE_TYPE,
    INNER_BASE,
    INNER_NUM,
    MAX_INNER_MESSAGES,
    QUEUE_TYPE,
)
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.light_queues import (
    LIGHT_QUEUE_ID,
    MAX_LIGHT_QUEUES,
    MAX_LIGHT_QUEUES_OF_MESSAGE,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    SEPARATOR,
    is_valid_folder_name,
    light_queue_names,
)
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH

_BROKERS_OWN = frozenset({INNER_BASE, MULTI_QUEUE_OFFSET})
"""Properties that only the broker sets: the position of a record in its queues."""


class PutResult(NamedTuple):
    """Position of a stored message in its queue and in the log.

    Attributes:
        physical_offset: physical offset of its record in the CommitLog.
        size: size of its record.
        queue_offset: queue offset.
        store_timestamp: store time, ms.
        store_host: address of the store.
        queue_id: queue chosen by the store; None if the producer chose it.
    """

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: Host
    queue_id: int | None = None

    @property
    def msg_id(self) -> str:
        """Offset message id."""
        return serialize_message_id(self.store_host, self.physical_offset)


def needs_queue_offsets(sys_flag: int, properties: Container[str]) -> bool:
    """Return whether a record's properties may have to name queue offsets, as for light queues (LMQ)."""
    return bool(sys_flag & INNER_BATCH) or MULTI_DISPATCH in properties or INNER_NUM in properties


def has_broker_properties(properties: Container[str]) -> bool:
    """Return whether properties contain any that only the broker may set."""
    return MULTI_QUEUE_OFFSET in properties or INNER_BASE in properties


def remove_broker_properties(message: NewMessage) -> NewMessage:
    """Return the message without the properties that only the broker may set."""
    kept = tuple(pair for pair in message.properties if pair[0] not in _BROKERS_OWN)
    return message if len(kept) == len(message.properties) else replace(message, properties=kept)


class MessageWriter(LogWriter):
    """Writer of messages to a store in RocketMQ's layout.

    Attributes:
        preparing: prepares records of messages.
    """

    def __init__(self, options: StoreOptions, clock: Callable[[], int], files: StoreFiles, last: LogProgress) -> None:
        super().__init__(last)
        self._options = options
        self._clock = clock
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._topics = files.config.topics
        self.preparing = MessagePreparer(options, files.log.max_record_bytes)

    def put(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Append all messages of one queue, or none of them.

        Raises:
            MessageRefusedError: if a broker would refuse one of them; nothing was written.
            DiskFullError: if the disk has no room; nothing was written.
            StoreUnusableError: if the store is closed, or a write failed before.
        """
        if len(messages) == 1:
            return [self.put_one(messages[0])]
        return self.append([self.preparing.prepare(remove_broker_properties(message)) for message in messages])

    def put_one(self, message: NewMessage) -> PutResult:
        """Append one message to the log and its queue."""
        message = remove_broker_properties(message)
        if needs_queue_offsets(message.sys_flag, dict(message.properties)):
            return self._append_with_offset_properties(message)
        return self.append_one(self.preparing.prepare(message))

    def _append_with_offset_properties(self, message: NewMessage) -> PutResult:
        """Append a message whose properties must contain its queue offsets, which are determined under the lock."""
        with self.lock:
            numbers, count, names = self._queue_offset_properties(message)
            known = dict(message.properties) | numbers
            prepared = self.preparing.prepare(replace(message, properties=tuple(known.items())))
            return self.append_one(prepared._replace(message_count=count, light_queues=names))

    def _queue_offset_properties(self, message: NewMessage) -> tuple[dict[str, str], int, tuple[str, ...]]:
        """Return the properties with queue offsets to add, the number of messages, and the names of light queues."""
        known = dict(message.properties)
        if message.sys_flag & INNER_BATCH or INNER_NUM in known:
            count = parse_int(known.get(INNER_NUM), 1, MAX_INNER_MESSAGES)
            if count is None or not self._topics.is_batch(message.topic):
                raise MessageRefusedError(
                    f"inner batch: expected the property {INNER_NUM} from 1 to {MAX_INNER_MESSAGES}, and a topic with "
                    f"{QUEUE_TYPE}={BATCH_QUEUE_TYPE}, found {known.get(INNER_NUM, 'none')[:40]!r} in a message of "
                    f"{message.topic}"
                )
            queue = self._queues.find_or_create(message.topic, message.queue_id)
            return {INNER_BASE: str(queue.max_offset)}, count, ()
        names = light_queue_names(message.topic, known)
        if not names or not self._queues.has_light_queues or not all(map(is_valid_folder_name, names)):
            return {}, 1, ()
        distinct = tuple(dict.fromkeys(names))
        if len(names) > MAX_LIGHT_QUEUES_OF_MESSAGE:
            raise MessageRefusedError(
                f"{MULTI_DISPATCH}: expected at most {MAX_LIGHT_QUEUES_OF_MESSAGE} light queues of a message, found "
                f"{len(names)}"
            )
        if not self._queues.can_add_light_queues(distinct):
            raise MessageRefusedError(
                f"{MULTI_DISPATCH}: the message needs new light queues, but the store has {MAX_LIGHT_QUEUES} already, "
                "which is the limit"
            )
        numbers = [str(light.max_offset if (light := self._queues.find_light_queue(name)) else 0) for name in names]
        return {MULTI_QUEUE_OFFSET: SEPARATOR.join(numbers)}, 1, distinct

    def append(self, messages: Sequence[PreparedMessage]) -> list[PutResult]:
        """Append prepared messages of one queue, or none of them."""
        first = messages[0]
        with self.lock:
            self.check_writable()
            queue = self._queues.find_or_create(first.topic, first.queue_id)
            results = self._append_to_queue(queue, messages)
            self._topics.ensure_queue(first.topic, first.queue_id)
            self.arrived.add((first.topic, first.queue_id))
        return results

    def append_one(self, message: PreparedMessage) -> PutResult:
        """Append one prepared message, with faster code than for several."""
        topic, queue_id, record, _, queued, tags_code, is_due_later, index_keys, message_count, names = message
        size = len(record)
        with self.lock:
            self.check_writable()
            log, index = self._log, self._index
            queue = self._queues.find_or_create(topic, queue_id)
            store_timestamp = self._clock()
            queue_offset = queue.max_offset if queued else 0
            message.set_offsets(queue_offset, log.end, store_timestamp)
            # From here to the append, room is made in all files. If any is missing, nothing was written yet.
            log.check_size(size)
            queue.files.create_files_for(queue.entry_size)
            if index is not None:
                index.check_free_space(len(index_keys))
            # Last, because a refused message must not leave new light queues in the store.
            light_queues = [self._queues.find_or_create_light_queue(name) for name in names] if names else ()
            for light in light_queues:
                light.files.create_files_for(light.entry_size)
            offset = log.append((record,), lambda offset: message.set_offsets(queue_offset, offset, store_timestamp))
            try:
                if queued:
                    code = tags_code + store_timestamp if is_due_later else tags_code
                    queue.append(offset, size, code, store_timestamp, message_count)
                    for light in light_queues:
                        light.append(offset, size, code)
                        self.arrived.add((light.topic, LIGHT_QUEUE_ID))
                if index is not None:
                    index.put(topic, ((index_keys, offset),), store_timestamp)
            # Also an interrupt: the message is in the log, and the next one would get the same queue offset.
            except BaseException as error:
                raise self._mark_unusable_after_append(offset, error) from error
            # Only now is the message part of the progress, which the checkpoint confirms.
            self.last = LogProgress(log.end, store_timestamp, offset)
            self._topics.ensure_queue(topic, queue_id)
            self.arrived.add((topic, queue_id))
        return PutResult(offset, size, queue_offset, store_timestamp, self._options.store_host)

    def _mark_unusable_after_append(self, physical_offset: int, error: BaseException) -> StoreUnusableError:
        return self.mark_unusable(
            error, f"the message at {physical_offset} is in the log, but not in its queue or the index"
        )

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Append messages as a producer's batch: all in one queue, without transactions, and limited in total size."""
        check_batch(messages, self._options.max_message_size_bytes)
        return self.put(messages)

    def _append_to_queue(self, queue: AnyQueue, messages: Sequence[PreparedMessage]) -> list[PutResult]:
        store_timestamp = self._clock()
        records: list[bytearray] = [message.record for message in messages]
        place = partial(self._set_offsets, queue.max_offset, messages, records, store_timestamp)
        place(self._log.end)
        self._log.check_size(sum(map(len, records)))
        queue.files.create_files_for(len(messages) * queue.entry_size)
        if self._index is not None:
            self._index.check_free_space(sum(len(message.index_keys) for message in messages))
        # A batch is in one segment, and may be moved to the next one, so offsets are set once more then.
        offset = self._log.append(records, place)
        try:
            results = self._dispatch_messages(queue, messages, offset, store_timestamp)
        except BaseException as error:
            raise self._mark_unusable_after_append(offset, error) from error
        self.last = LogProgress(self._log.end, store_timestamp, results[-1].physical_offset)
        return results

    @staticmethod
    def _set_offsets(
        queue_offset: int,
        messages: Sequence[PreparedMessage],
        records: Sequence[bytearray],
        store_timestamp: int,
        physical_offset: int,
    ) -> None:
        """Write queue offsets, physical offsets and store time into records that follow one another in the log."""
        for message, record in zip(messages, records, strict=True):
            message.set_offsets(queue_offset, physical_offset, store_timestamp)
            physical_offset += len(record)
            queue_offset += message.is_queued

    def _dispatch_messages(
        self, queue: AnyQueue, messages: Sequence[PreparedMessage], physical_offset: int, store_timestamp: int
    ) -> list[PutResult]:
        store_host = self._options.store_host
        results: list[PutResult] = []
        entries: list[tuple[int, int, int]] = []
        keyed: list[tuple[tuple[str, ...], int]] = []
        queue_offset = queue.max_offset
        for _, _, record, _, queued, tags_code, is_due_later, index_keys, _, _ in messages:
            size = len(record)
            results.append(PutResult(physical_offset, size, queue_offset if queued else 0, store_timestamp, store_host))
            if queued:
                entries.append((physical_offset, size, tags_code + store_timestamp if is_due_later else tags_code))
                queue_offset += 1
            keyed.append((index_keys, physical_offset))
            physical_offset += size
        queue.append_all(entries, store_timestamp)
        if self._index is not None:
            self._index.put(queue.topic, keyed, store_timestamp)
        return results
