"""A broker's store in JMQ's layout: one journal for all topics, queues that lead into it, and what consumers did."""

from broker_lite.journal.archive import ArchiveView, Produced
from broker_lite.journal.consuming import Batch, BatchLostError, Consuming
from broker_lite.journal.options import JournalOptions
from broker_lite.journal.reading import JournalGetResult
from broker_lite.journal.recovery import JournalRecovery
from broker_lite.journal.retry import Retry, RetryStatus, RetryStore, retry_delay_ms
from broker_lite.journal.store import JournalStore
from broker_lite.journal.writing import JournalPutResult

__all__ = [
    "ArchiveView",
    "Batch",
    "BatchLostError",
    "Consuming",
    "JournalGetResult",
    "JournalOptions",
    "JournalPutResult",
    "JournalRecovery",
    "JournalStore",
    "Produced",
    "Retry",
    "RetryStatus",
    "RetryStore",
    "retry_delay_ms",
]
