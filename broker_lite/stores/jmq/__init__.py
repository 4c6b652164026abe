"""Store in JMQ's layout: one journal for all topics, queues that point into it, and records of consumption."""

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.jmq.batch_consumption import Batch, Consuming
from commitlake.broker_lite.stores.jmq.journal_writer import JournalPutResult
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.retry_store import Retry, RetryStatus, RetryStore, retry_delay_ms
from commitlake.broker_lite.stores.jmq.store import JournalStore

__all__ = [
    "Batch",
    "Consuming",
    "JournalOptions",
    "JournalPutResult",
    "JournalStore",
    "Retry",
    "RetryStatus",
    "RetryStore",
    "StoreError",
    "retry_delay_ms",
]
