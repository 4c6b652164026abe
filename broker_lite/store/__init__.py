"""The files of a broker: CommitLog, ConsumeQueue, IndexFile, checkpoint and config, written as RocketMQ writes them."""

from broker_lite.store.config_files import MAX_QUEUES
from broker_lite.store.errors import (
    ConfigFileError,
    DiskFullError,
    IndexDisabledError,
    MessageRefusedError,
    OptionError,
    StoreError,
    StoreFilesError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedError,
)
from broker_lite.store.options import FlushMode, StoreOptions
from broker_lite.store.reading import GetResult, GetStatus
from broker_lite.store.recovery import RecoveryReport
from broker_lite.store.store import MessageStore, system_clock
from broker_lite.store.writing import PutResult

__all__ = [
    "MAX_QUEUES",
    "ConfigFileError",
    "DiskFullError",
    "FlushMode",
    "GetResult",
    "GetStatus",
    "IndexDisabledError",
    "MessageRefusedError",
    "MessageStore",
    "OptionError",
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
