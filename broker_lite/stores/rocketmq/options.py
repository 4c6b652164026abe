"""Settings of a store; names and defaults follow RocketMQ's MessageStoreConfig, with units."""

from __future__ import annotations

from dataclasses import dataclass, field

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.engine.options import FlushMode, RetentionOptions, check_range
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue, indexfile, timers
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS, parse_delay_levels
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE, MIN_RECORD_SIZE
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import DEFAULT_SEGMENT_SIZE

DEFAULT_STORE_HOST = Host.of("127.0.0.1", 10911)

RECORD_ALLOWANCE_BYTES = 64 << 10
"""A record may exceed the largest body by this, for topic and properties."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of a store in RocketMQ's layout; file sizes must be those of the existing files.

    Attributes:
        segment_size_bytes: size of a CommitLog file.
        consume_queue_file_size_bytes: size of a ConsumeQueue file, a multiple of 20.
        batch_queue_file_size_bytes: size of a BatchConsumeQueue file, a multiple of 46.
        timer_log_file_size_bytes: size of a timer log file in a store that has none yet.
        index_slots: hash slots of an IndexFile.
        index_entries: entries of an IndexFile; the first is never used.
        keep_index: whether messages are entered into the index; has no effect in a dialect without a usable index.
        index_tags: whether TAGS are also entered, as by brokers since 5.5.
        flush_mode: SYNC flushes every message to disk before `put` returns.
        flush_interval_ms: time between two flushes of the CommitLog in ASYNC mode.
        max_message_size_bytes: limit of a body, and of all bodies of a batch together.
        message_delay_level: delays of the levels from 1 on.
        store_host: address of the broker, stored in records and message ids.
        retention: settings of the deletion of old segments.
        dialect: dialect of records, queues and config files.
    """

    segment_size_bytes: int = DEFAULT_SEGMENT_SIZE
    consume_queue_file_size_bytes: int = consumequeue.DEFAULT_FILE_SIZE
    batch_queue_file_size_bytes: int = batchconsumequeue.DEFAULT_FILE_ENTRIES * batchconsumequeue.ENTRY.size
    timer_log_file_size_bytes: int = timers.DEFAULT_LOG_FILE_SIZE
    index_slots: int = indexfile.DEFAULT_SLOTS
    index_entries: int = indexfile.DEFAULT_ENTRIES
    keep_index: bool = True
    index_tags: bool = True
    flush_mode: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500
    max_message_size_bytes: int = 4 << 20
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    store_host: Host = DEFAULT_STORE_HOST
    retention: RetentionOptions = field(default_factory=RetentionOptions)
    dialect: Dialect = ROCKETMQ

    def __post_init__(self) -> None:
        """Check the values of all options.

        Raises:
            StoreError: if an option's value is invalid.
        """
        check_range("segment_size_bytes", self.segment_size_bytes, MIN_RECORD_SIZE + END_RESERVE, (1 << 31) - 1)
        for name, unit in (
            ("consume_queue_file_size_bytes", consumequeue.ENTRY.size),
            ("batch_queue_file_size_bytes", batchconsumequeue.ENTRY.size),
        ):
            check_range(name, size := getattr(self, name), unit, (1 << 31) - 1)
            if size % unit:
                raise StoreError(f"{name}: expected a multiple of {unit}, the size of an entry, found {size}")
        check_range(
            "timer_log_file_size_bytes", self.timer_log_file_size_bytes, timers.MIN_LOG_FILE_SIZE, (1 << 31) - 1
        )
        check_range("index_slots", self.index_slots, 1, (1 << 31) - 1)
        check_range("index_entries", self.index_entries, 2, (1 << 31) - 1)
        check_range("flush_interval_ms", self.flush_interval_ms, 1, 1 << 31)
        check_range("max_message_size_bytes", self.max_message_size_bytes, 0, (1 << 31) - 1 - RECORD_ALLOWANCE_BYTES)
        try:
            parse_delay_levels(self.message_delay_level)
        except ValueError as error:
            raise StoreError(f"message_delay_level: {error}") from None
        if self.store_host.is_v6 and not self.dialect.has_v6_hosts:
            raise StoreError(f"store_host: expected an IPv4 address for {self.dialect.name}, found {self.store_host}")

    @property
    def has_index(self) -> bool:
        """True if messages are entered into the index."""
        return self.keep_index and self.dialect.has_key_index

    @property
    def settings(self) -> dict[str, object]:
        """Settings under RocketMQ's names."""
        return {
            **({} if self.dialect.is_rocketmq else {"storeLayout": self.dialect.name.lower()}),
            "mappedFileSizeCommitLog": self.segment_size_bytes,
            "mappedFileSizeConsumeQueue": self.consume_queue_file_size_bytes,
            "mapperFileSizeBatchConsumeQueue": self.batch_queue_file_size_bytes,
            "mappedFileSizeTimerLog": self.timer_log_file_size_bytes,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_entries,
            "maxMessageSize": self.max_message_size_bytes,
            "messageDelayLevel": self.message_delay_level,
        }

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delays of levels 1, 2, 3, ..., ms."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def index_geometry(self) -> indexfile.Geometry:
        """Number of slots and entries of an IndexFile."""
        return indexfile.Geometry(self.index_slots, self.index_entries)
