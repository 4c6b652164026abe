"""Store in RocketMQ's layout: CommitLog, ConsumeQueue, IndexFile, checkpoint and config, as RocketMQ writes them."""

from commitlake.broker_lite.errors import (
    DiskFullError,
    IndexDisabledError,
    MessageRefusedError,
    StoreError,
    StoreFilesError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedError,
)
from commitlake.broker_lite.stores.engine.log_writer import RecoveryReport
from commitlake.broker_lite.stores.engine.open_store import system_clock
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.broker_lite.stores.engine.queue_reader import GetResult, GetStatus
from commitlake.broker_lite.stores.rocketmq.config_files import MAX_QUEUES
from commitlake.broker_lite.stores.rocketmq.message_writer import PutResult
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.store import MessageStore

__all__ = [
    "MAX_QUEUES",
    "DiskFullError",
    "FlushMode",
    "GetResult",
    "GetStatus",
    "IndexDisabledError",
    "MessageRefusedError",
    "MessageStore",
    "PutResult",
    "RecoveryReport",
    "StoreError",
    "StoreFilesError",
    "StoreLockedError",
    "StoreOptions",
    "StoreUnusableError",
    "UnsupportedError",
    "system_clock",
]
