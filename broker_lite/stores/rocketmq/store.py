"""The message store: one folder with the files of a RocketMQ broker, in one process.

    with MessageStore.open(folder, StoreOptions(segment_size_bytes=1 << 20)) as store:
        result = store.put(NewMessage("orders", b"{}", born_timestamp, born_host, properties=[("KEYS", "order-4711")]))
        store.get("orders", 0, result.queue_offset).messages

The folder holds `commitlog/`, `consumequeue/`, `index/`, `config/`, `checkpoint`, `lock` and, while it is open,
`abort`. A RocketMQ broker with the same file sizes opens it, and this store opens a broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from commitlake.broker_lite.stores.engine.open_store import system_clock
from commitlake.broker_lite.stores.engine.ownership import AbortMark, StoreLock, holding
from commitlake.broker_lite.stores.engine.progress import Progress
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.broker_lite.stores.rocketmq.config_files import MAX_QUEUES, ConfigFiles
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatching
from commitlake.broker_lite.stores.rocketmq.files import StoreFiles
from commitlake.broker_lite.stores.rocketmq.flushing import Flusher
from commitlake.broker_lite.stores.rocketmq.lookups import LookUps
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.prepared import Preparing, SentMessage
from commitlake.broker_lite.stores.rocketmq.reading import Reader
from commitlake.broker_lite.stores.rocketmq.recovery import Recovery
from commitlake.broker_lite.stores.rocketmq.writing import PutResult, Writer, needs_numbers
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.timer_checkpoint import TimerCheckpoint


class MessageStore(LookUps):
    """An open store; several threads may use it.

    Attributes:
        path: its folder.
        options: its settings.
        clock: gives the store time of messages, ms.
        recovery: what was found when it was opened.
        before_close: what is called when it is about to be closed, for whoever keeps state in it.
    """

    def __init__(
        self, path: Path, options: StoreOptions, clock: Callable[[], int], lock: StoreLock, *, is_copy: bool
    ) -> None:
        """Load and recover the files of a folder whose lock is held; use `open`."""
        self.path = path
        self.options = options
        self.clock = clock
        self.before_close: list[Callable[[], None]] = []
        self._lock = lock
        self._abort = AbortMark(path)
        self._files = StoreFiles.load(path, options, clock)
        self._mappings = self._files.mappings
        # From here on files are changed: whoever finds them in the middle of it must know.
        self._abort.set()
        if is_copy:
            checkpoint = self._files.checkpoint.value
            self._files.log.drop_doubtful(checkpoint.logics_physical_offset, checkpoint.logics_msg_timestamp)
        self.recovery = Recovery(self._files, Dispatching(options)).run(crashed=self._abort.was_found)
        for queue in self._files.queues:
            if not queue.topic.startswith(LIGHT_PREFIX):
                self.config.topics.ensure(queue.topic, queue.queue_id)
        self._writer = Writer(options, clock, self._files, self.recovery.progress)
        self._reader = Reader(self._files)
        self._flusher = Flusher(options, self._writer, self._files)
        self._retention = Retention(path, self._files.log.files, self._files.delete_expired, options.retention)

    @property
    def config(self) -> ConfigFiles:
        """Topics, groups and offsets."""
        return self._files.config

    @property
    def files(self) -> StoreFiles:
        """The files themselves, for whoever copies another store's log into them; the writer's lock guards them."""
        return self._files

    @property
    def writer(self) -> Writer:
        """What knows how far the log has come; see `files`."""
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
        """Open a folder, which is created if it is not there, and recover what is in it.

        Args:
            path: the store's root.
            options: its settings; file sizes must be those of the files that are there.
            clock: gives ms since 1970.
            is_copy: whether the log is a copy, whose end its master will send again where it is in doubt; see
                `CommitLog.drop_doubtful`.

        Raises:
            StoreLockedError: if a broker or another store has it open.
            StoreFilesError: if its files do not fit the options or one another.
            UnsafeFileError: for a link, or something else that is no file, among them.
            ConfigFileError: if a file under `config/` is broken, and its `.bak` too.
        """
        root = Path(path)
        with holding(root) as lock:
            store = cls(root, options or StoreOptions(), clock, lock, is_copy=is_copy)
        store._flusher.start()
        return store

    def close(self) -> None:
        """Let those who keep state in the store save it, put everything on the disk, and give the folder back."""
        try:
            if not self._writer.is_closed and self._writer.failure is None:
                for save in self.before_close:
                    save()
        finally:
            super().close()

    def _save_rest(self) -> None:
        if self._files.index is not None:
            self._files.index.sync()
        self.config.save()

    def put(self, message: NewMessage) -> PutResult:
        """Store a message.

        Raises:
            MessageRefusedError: if a broker would refuse it; nothing was written.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        result = self._writer.put([message])[0]
        self._wait_for(result.physical_offset + result.size)
        return result

    @property
    def preparing(self) -> Preparing:
        """Makes records of messages, as `send` does."""
        return self._writer.preparing

    def send(self, message: SentMessage) -> PutResult:
        """Store a producer's message without waiting for the disk in any mode; see `put`."""
        if needs_numbers(message.sys_flag, message.properties):
            return self._writer.put_one(message.with_pairs())
        return self._writer.append_one(self._writer.preparing.prepare_sent(message))

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store messages of one queue together, as `send`."""
        return self._writer.append([self._writer.preparing.prepare_sent(message) for message in messages])

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Store messages of one queue together, as a producer's batch: one after another, in one segment, or none.

        Raises:
            MessageRefusedError: if a broker would refuse the batch; nothing was written.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        results = self._writer.put_batch(messages)
        self._wait_for(results[-1].physical_offset + results[-1].size)
        return results

    def delete_queues(self, topic: str) -> None:
        """Forget the queues of a topic, with their files; the log keeps its messages."""
        with self._reading():
            self._files.queues.delete(topic)

    def cut_log(self, progress: Progress) -> None:
        """Let the log end where its last sound record does; nothing may lead behind it."""
        with self._flusher.paused(), self._reading():
            self._files.log.cut(progress.log_end)
            self._writer.last = progress

    @property
    def has_batch_queues(self) -> bool:
        """Whether a topic may have BatchConsumeQueues."""
        return self.options.dialect.is_rocketmq

    @property
    def timer_checkpoint(self) -> TimerCheckpoint | None:
        """How far the timers are; None in a dialect that has none."""
        return self._files.timers.checkpoint if self.options.dialect.has_transactions else None

    @property
    def max_queues(self) -> int:
        """Most queues that a topic can be given."""
        return MAX_QUEUES
