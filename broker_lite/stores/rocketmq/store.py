"""Message store: one folder with the files of a RocketMQ broker, in one process.

    with MessageStore.open(folder, StoreOptions(segment_size_bytes=1 << 20)) as store:
        result = store.put(NewMessage("orders", b"{}", born_timestamp, born_host, properties=[("KEYS", "order-4711")]))
        store.get("orders", 0, result.queue_offset).messages

The folder contains `commitlog/`, `consumequeue/`, `index/`, `config/`, `checkpoint`, `lock` and, while it is open,
`abort`. A RocketMQ broker with the same file sizes can open it, and this store can open a broker's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Sequence
from pathlib import Path

from commitlake.broker_lite.stores.engine.flushing import LogFlusher
from commitlake.broker_lite.stores.engine.log_writer import LogProgress
from commitlake.broker_lite.stores.engine.open_store import OpenStore, system_clock
from commitlake.broker_lite.stores.engine.queue_reader import DEFAULT_MAX_MESSAGES, GetResult, PullLimits, PullResult
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.broker_lite.stores.engine.store_lock import AbortMark, StoreLock, hold_store_lock
from commitlake.broker_lite.stores.rocketmq.config_files import MAX_QUEUES, ConfigFiles
from commitlake.broker_lite.stores.rocketmq.dispatch import DispatchBuilder
from commitlake.broker_lite.stores.rocketmq.message_preparation import MessagePreparer, PreparedMessage, SentMessage
from commitlake.broker_lite.stores.rocketmq.message_reader import DEFAULT_KEY_LIMIT, MAX_TIME_MS, MessageReader
from commitlake.broker_lite.stores.rocketmq.message_writer import (
    MessageWriter,
    PutResult,
    has_broker_properties,
    needs_queue_offsets,
    remove_broker_properties,
)
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.pulling import convert_for_client, low_32_bits, pull_records
from commitlake.broker_lite.stores.rocketmq.recovery import LogRecovery
from commitlake.broker_lite.stores.rocketmq.store_files import StoreFiles
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX

_NO_LIMIT = 1 << 63


class MessageStore(OpenStore[Message, MessageReader]):
    """Open store in RocketMQ's layout; several threads may use it.

    Attributes:
        path: folder of the store.
        options: settings of the store.
        clock: returns the store time of messages, ms.
        recovery: report of recovery at the opening.
        before_close: functions to call before the store is closed, by which other objects save their state.
    """

    options: StoreOptions
    _files: StoreFiles
    _writer: MessageWriter
    _reader: MessageReader

    def __init__(
        self, path: Path, options: StoreOptions, clock: Callable[[], int], lock: StoreLock, *, is_copy: bool
    ) -> None:
        """Load and recover the files of a folder that is already locked; use `open` instead."""
        self.path = path
        self.options = options
        self.clock = clock
        self.before_close: list[Callable[[], None]] = []
        self._lock = lock
        self._abort = AbortMark(path)
        self._files = StoreFiles.load(path, options, clock)
        self._mappings = self._files.mappings
        # Files are changed from here on, so a crash must be detectable.
        self._abort.set()
        if is_copy:
            self._files.queues.enable_light_queues_of_records()
            checkpoint = self._files.checkpoint.value
            self._files.log.truncate_to_confirmed_record(
                checkpoint.logics_physical_offset, checkpoint.logics_msg_timestamp
            )
        self.recovery = LogRecovery(self._files, DispatchBuilder(options)).run(is_after_crash=self._abort.was_found)
        # A topic without settings, as in a store whose topics.json was lost, would be refused to its consumers.
        for queue in self._files.queues:
            if not queue.topic.startswith(LIGHT_PREFIX):
                self.config.topics.ensure_queue(queue.topic, queue.queue_id)
        self._writer = MessageWriter(options, clock, self._files, self.recovery.progress)
        self._reader = MessageReader(self._files)
        self._flusher = StoreFlusher(options, self._writer, self._files)
        self._retention = Retention(path, self._files.log.files, self._files.delete_expired, options.retention)

    @property
    def config(self) -> ConfigFiles:
        """Topics, groups and offsets."""
        return self._files.config

    @property
    def files(self) -> StoreFiles:
        """Open files of the store, into which a slave copies its master's log; the caller holds the writer's lock."""
        return self._files

    @property
    def writer(self) -> MessageWriter:
        """Writer of the store's log, queues and index, which a slave uses to copy its master's log."""
        return self._writer

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: StoreOptions | None = None,
        *,
        clock: Callable[[], int] = system_clock,
        is_copy: bool = False,
    ) -> MessageStore:
        """Open a folder, create it if necessary, and recover its content.

        Args:
            path: folder of the store.
            options: settings; file sizes must be those of the existing files.
            clock: returns ms since 1970.
            is_copy: whether the log is a copy of a master's, which will send its uncertain end again; see
                `CommitLog.truncate_to_confirmed_record`.

        Raises:
            StoreLockedError: if a broker or another store has the folder open.
            StoreFilesError: if its files do not fit the options or one another.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
            StoreError: if a file under `config/` and its `.bak` are invalid.
        """
        root = Path(path)
        with hold_store_lock(root) as lock:
            store = cls(root, options or StoreOptions(), clock, lock, is_copy=is_copy)
        # Only now: recovery must not be disturbed by flushes of what it is changing.
        store._flusher.start()
        return store

    def close(self) -> None:
        """Call the functions of `before_close`, flush everything to disk, and release the folder."""
        try:
            if not self._writer.is_closed and self._writer.failure is None:
                for save in self.before_close:
                    save()
        finally:
            super().close()

    def _save_before_close(self) -> None:
        if self._files.index is not None:
            self._files.index.sync()
        self.config.save()

    def put(self, message: NewMessage) -> PutResult:
        """Store a message.

        Raises:
            MessageRefusedError: if a broker would refuse the message; nothing was written.
            DiskFullError: if the disk has no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        result = self._writer.put([message])[0]
        self._wait_until_flushed(result.physical_offset + result.size)
        return result

    @property
    def preparer(self) -> MessagePreparer:
        """Object that checks and serializes messages before `send` appends them."""
        return self._writer.preparing

    def send(self, message: SentMessage) -> PutResult:
        """Store a producer's message without waiting for the disk, even in SYNC mode."""
        if needs_queue_offsets(message.sys_flag, message.properties):
            return self._writer.put_one(message.as_new_message())
        return self._writer.append_one(self._prepare_sent_message(message))

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store all messages of a batch in one queue, or none of them, without waiting for the disk."""
        return self._writer.append([self._prepare_sent_message(message) for message in messages])

    def _prepare_sent_message(self, message: SentMessage) -> PreparedMessage:
        if has_broker_properties(message.properties):
            return self._writer.preparing.prepare(remove_broker_properties(message.as_new_message()))
        return self._writer.preparing.prepare_sent(message)

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Store messages of one queue as a producer's batch: consecutively in one segment, or none of them.

        Raises:
            MessageRefusedError: if a broker would refuse the batch; nothing was written.
            DiskFullError: if the disk has no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        results = self._writer.put_batch(messages)
        self._wait_until_flushed(results[-1].physical_offset + results[-1].size)
        return results

    def delete_queues(self, topic: str) -> None:
        """Delete the queues of a topic with their files; the messages stay in the log."""
        with self._lock_reader():
            self._files.queues.delete_topic(topic)

    def truncate_log(self, progress: LogProgress) -> None:
        """Truncate the log after a record; the queues must already be without entries of later records."""
        with self._flusher.flush_lock(), self._lock_reader():
            self._files.log.truncate_at(progress.log_end)
            self._writer.last = progress

    @property
    def has_batch_queues(self) -> bool:
        """True if a topic may have BatchConsumeQueues."""
        return self.options.dialect.is_rocketmq

    @property
    def timer_checkpoint(self) -> TimerCheckpoint | None:
        """Checkpoint of the timers; None in a dialect without timers."""
        return self._files.timers.checkpoint if self.options.dialect.has_transactions else None

    @property
    def max_queues(self) -> int:
        """Maximum number of queues of a topic."""
        return MAX_QUEUES

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult[Message]:
        """Return messages of a queue, from a queue offset on.

        Raises:
            StoreFilesError: if a record of the queue is damaged.
        """
        with self._lock_reader() as reader:
            return reader.get(topic, queue_id, queue_offset, max_messages)

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: PullLimits,
        tag_codes: Container[int] | None = None,
        accepts_record: Callable[[bytes], bool] | None = None,
    ) -> PullResult:
        """Return records of a queue that match a filter, in the form for clients, from a queue offset on."""
        with self._lock_reader():
            return pull_records(self._files, topic, queue_id, queue_offset, limits, tag_codes, accepts_record)

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueueEntry | None:
        """Return the ConsumeQueue entry of a message, or None if the queue has none or only filler."""
        with self._lock_reader() as reader:
            return reader.entry_at(topic, queue_id, queue_offset)

    def tag_codes_in_queue_entries(
        self, tags: Collection[str], client_tag_codes: Collection[int]
    ) -> frozenset[int] | None:
        """Return the hashes of tags as the queue entries contain them; None if they cannot be computed.

        Args:
            tags: tags that a consumer subscribes to.
            client_tag_codes: hashes of these tags that the consumer sent, computed as in Java.
        """
        dialect = self.options.dialect
        if dialect.is_rocketmq:
            return frozenset(client_tag_codes)
        return frozenset(low_32_bits(dialect.tags_code(tag)) for tag in tags) or None

    def record_for_client(self, message: Message) -> bytes:
        """Return the bytes of a message's record in the form that clients expect."""
        return convert_for_client(self.record_at(message.physical_offset, message.size))

    def get_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id, or None if this store does not have it.

        Raises:
            LayoutError: if the text is not an offset message id.
        """
        with self._lock_reader() as reader:
            return reader.message_by_id(msg_id)

    def get_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = MAX_TIME_MS, limit: int = DEFAULT_KEY_LIMIT
    ) -> list[Message]:
        """Return the newest messages with a key, in the order of the log.

        Args:
            topic: topic under which they are stored; `SCHEDULE_TOPIC_XXXX` for delayed messages.
            key: a UNIQ_KEY, one of the KEYS, or `tags_key(TAGS)`.
            begin_ms: earliest store time.
            end_ms: latest store time.
            limit: maximum number of messages.

        Raises:
            IndexDisabledError: if the store has no index.
        """
        looking = self.get_by_key_in_steps(topic, key, begin_ms, end_ms, limit)
        while True:
            try:
                next(looking)
            except StopIteration as done:
                found: list[Message] = done.value
                return found

    def get_by_key_in_steps(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, limit_bytes: int = _NO_LIMIT
    ) -> Generator[None, None, list[Message]]:
        """Find the newest messages with a key in small steps, between which the store's lock is released.

        Args:
            topic: see `get_by_key`.
            key: see `get_by_key`.
            begin_ms: see `get_by_key`.
            end_ms: see `get_by_key`.
            limit: maximum number of messages.
            limit_bytes: maximum size of all records together; a single one may be larger.
        """
        with self._lock_reader() as reader:
            steps = reader.messages_by_key(topic, key, begin_ms, end_ms, limit, limit_bytes)
        while True:
            with self._lock_reader():
                try:
                    next(steps)
                except StopIteration as done:
                    found: list[Message] = done.value
                    return found
            yield

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, or -1 if there is no message at that offset."""
        with self._lock_reader() as reader:
            return reader.timestamp_at(topic, queue_id, queue_offset)

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the log."""
        with self._lock_reader() as reader:
            return reader.log_start

    @property
    def max_physical_offset(self) -> int:
        """Physical offset of the end of the last record: the next one goes there, or to a new segment."""
        with self._lock_reader() as reader:
            return reader.log_end


class StoreFlusher(LogFlusher):
    """Flusher of queues, timers and index of a store in RocketMQ's layout, which then writes the checkpoint."""

    def __init__(self, options: StoreOptions, writer: MessageWriter, files: StoreFiles) -> None:
        super().__init__(options, writer, files.log.files, files.config.save_if_changed)
        self._queues = files.queues
        self._index = files.index
        self._checkpoint = files.checkpoint
        self._timers = files.timers
        self._log_synced = writer.last

    def _note_synced_log(self, progress: LogProgress) -> None:
        self._log_synced = progress
        if progress.store_timestamp:
            self._checkpoint.update(physic_msg_timestamp=progress.store_timestamp)

    def _sync_derived_files(self) -> None:
        # Read before the files are flushed: the checkpoint may confirm only what is certainly on disk.
        progress = self._writer.last
        self._queues.sync()
        self._timers.sync()
        if self._index is not None:
            # Only full files, as in RocketMQ: the checkpoint confirms the index up to the last of them.
            self._index.sync_full_files()
            if self._index.synced_timestamp:
                self._checkpoint.update(index_msg_timestamp=self._index.synced_timestamp)
        if progress.store_timestamp:
            self._checkpoint.update(
                logics_msg_timestamp=progress.store_timestamp,
                # The log is also on disk up to this record: a copy of a log keeps nothing after it.
                logics_physical_offset=self._log_synced.last_record,
            )
        self._save_checkpoint(self._checkpoint.save)
