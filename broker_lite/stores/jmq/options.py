"""Settings of a store in JMQ's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.engine.options import FlushMode, RetentionOptions, check_range
from commitlake.schemas.layouts.jmq import consume_records as jmq_consumption
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.jmq.journal import DEFAULT_LEVEL
from commitlake.schemas.layouts.rocketmq.hosts import Host

DEFAULT_SERVER_ADDRESS = Host.of("127.0.0.1", 50088)
MAX_QUEUES = 255
"""Queue id 255 is not used."""
RECORD_ALLOWANCE_BYTES = 128 << 10
"""A record may exceed the largest body by this, for texts and properties."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Settings of a store in JMQ's layout; file sizes must be those of the existing files.

    Attributes:
        journal_file_size_bytes: size of a journal file.
        queue_file_size_bytes: size of a queue file, a multiple of 22.
        consume_file_size_bytes: size of a file of the log of consume records.
        flush_mode: SYNC flushes every message to disk before `put` returns.
        flush_interval_ms: time between two flushes of the journal in ASYNC mode.
        max_body_size_bytes: limit of a body in stored form.
        compression_level: level of zlib, 1 to 9; 0 for no compression.
        queue_count: number of queues of a topic.
        queue_weights: weights of a topic's queues, by topic: one number for each queue. They do not apply to ordered
            messages.
        lock_timeout_ms: time after which a consumer loses a batch that it has not finished.
        retry_max_attempts: number of failed retries after which a message becomes a dead letter.
        retry_expiry_ms: time after which a message becomes a dead letter.
        broker_name: name of the broker in message ids.
        server_address: IPv4 address of the broker, stored in records.
        retention: settings of the deletion of old journal files; queue files and consume records are deleted with them.
    """

    journal_file_size_bytes: int = journal.DEFAULT_FILE_SIZE
    queue_file_size_bytes: int = jmq_queue.DEFAULT_FILE_SIZE
    consume_file_size_bytes: int = jmq_consumption.DEFAULT_FILE_SIZE
    flush_mode: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500
    max_body_size_bytes: int = journal.MAX_BODY_SIZE
    compression_level: int = DEFAULT_LEVEL
    queue_count: int = 4
    queue_weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lock_timeout_ms: int = 60_000
    retry_max_attempts: int = 11
    retry_expiry_ms: int = 3 * _DAY_MS
    broker_name: str = "broker-a"
    server_address: Host = DEFAULT_SERVER_ADDRESS
    retention: RetentionOptions = field(default_factory=RetentionOptions)

    def __post_init__(self) -> None:
        """Check the values of all options.

        Raises:
            StoreError: if an option's value is invalid.
        """
        most, unit = (1 << 31) - 1, jmq_queue.ENTRY.size
        check_range("journal_file_size_bytes", self.journal_file_size_bytes, _MIN_FILE_BYTES, most)
        check_range("queue_file_size_bytes", self.queue_file_size_bytes, unit, most)
        if self.queue_file_size_bytes % unit:
            raise StoreError(
                f"queue_file_size_bytes: expected a multiple of {unit}, the size of an entry, found "
                f"{self.queue_file_size_bytes}"
            )
        check_range("consume_file_size_bytes", self.consume_file_size_bytes, jmq_consumption.MAX_RECORD_SIZE, most)
        check_range("flush_interval_ms", self.flush_interval_ms, 1, most)
        check_range("max_body_size_bytes", self.max_body_size_bytes, 0, most - RECORD_ALLOWANCE_BYTES)
        check_range("compression_level", self.compression_level, 0, 9)
        check_range("queue_count", self.queue_count, 1, MAX_QUEUES)
        check_range("lock_timeout_ms", self.lock_timeout_ms, 1, most)
        check_range("retry_max_attempts", self.retry_max_attempts, 0, jmq_consumption.MAX_ATTEMPT - 1)
        check_range("retry_expiry_ms", self.retry_expiry_ms, 0, 1 << 53)
        if not self.broker_name or "@" in self.broker_name:
            raise StoreError(f"broker_name: expected a name without @, found {self.broker_name!r}")
        if self.server_address.is_v6 or not 0 <= self.server_address.port <= 0xFFFF:
            raise StoreError(f"server_address: expected an IPv4 address and a port, found {self.server_address}")
        for topic, weights in self.queue_weights.items():
            if not 1 <= len(weights) <= MAX_QUEUES or min(weights) < 0 or not any(weights):
                found_text = f"found {weights} for {topic}"
                raise StoreError(
                    f"queue_weights: expected 1 to {MAX_QUEUES} numbers of at least 0, and not only 0, {found_text}"
                )

    @property
    def max_message_size_bytes(self) -> int:
        """Maximum size of a body, under the name that stores in other layouts use."""
        return self.max_body_size_bytes

    @property
    def settings(self) -> dict[str, object]:
        """Settings to show to administrators, under RocketMQ's names where those exist."""
        return {
            "storeLayout": "jmq",
            "mappedFileSizeCommitLog": self.journal_file_size_bytes,
            "mappedFileSizeConsumeQueue": self.queue_file_size_bytes,
            "maxMessageSize": self.max_body_size_bytes,
            "retryMaxAttempts": self.retry_max_attempts,
            "retryExpiryMs": self.retry_expiry_ms,
        }

    def queue_count_of(self, topic: str) -> int:
        """Return the number of queues of a topic."""
        weights = self.queue_weights.get(topic)
        return self.queue_count if weights is None else len(weights)


_MIN_FILE_BYTES = journal.MIN_RECORD_SIZE + journal.END_RESERVE
