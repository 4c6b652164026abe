"""Store in JMQ's layout: one journal for all topics, queues that point into it, and records of consumption."""

from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.stores.jmq.consuming import Batch, Consuming
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.retry import Retry, RetryStatus, RetryStore, retry_delay_ms
from commitlake.broker_lite.stores.jmq.store import ArchiveView, JournalStore, Produced
from commitlake.broker_lite.stores.jmq.writing import JournalPutResult

__all__ = [
    "ArchiveView",
    "Batch",
    "Consuming",
    "JournalOptions",
    "JournalPutResult",
    "JournalStore",
    "Produced",
    "Retry",
    "RetryStatus",
    "RetryStore",
    "StoreError",
    "retry_delay_ms",
]
