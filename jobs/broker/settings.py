"""Settings of `commitlake broker`: from its options, otherwise from --broker-conf, otherwise the defaults.

A broker that takes over a RocketMQ broker's store must use its file sizes and delay levels, and should keep its
settings of retention and flushing. So these are read from the same broker.conf.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from commitlake.jobs.arguments.broker_conf import read_broker_conf, read_store_conf
from commitlake.jobs.broker.arguments import JMQ, BrokerArguments
from commitlake.jobs.cli.command import JobError
from commitlake.schemas.layouts.boltmq.deletion_settings import is_boltmq_conf, parse_boltmq_conf
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf, BrokerConfError, parse_broker_conf
from commitlake.schemas.layouts.rocketmq.store_conf import StoreConf

_KIB = 1 << 10


@dataclass(frozen=True)
class Settings:
    """The values of the options that a broker.conf may set.

    Attributes:
        segment_size: size of a file of the log in bytes; None for the layout's own.
        delay_levels: delays of the delay levels; None for RocketMQ's defaults.
    """

    broker: str = "broker-a"
    flush: str = "async"
    segment_size: int | None = None
    queue_entries: int = 300_000
    batch_queue_entries: int = batchconsumequeue.DEFAULT_FILE_ENTRIES
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    max_message_kib: int = 4096
    reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    disk_percent: tuple[int, int, int] = (75, 85, 90)
    delay_levels: str | None = None


def resolve_settings(arguments: BrokerArguments) -> Settings:
    """Return each setting's value: from its option, otherwise from --broker-conf, otherwise the default.

    Raises:
        JobError: The file cannot be read, or has a value that the broker would not accept.
    """
    known: dict[str, Any] = {}
    if arguments.broker_conf:
        path, name = arguments.broker_conf, arguments.broker or Settings.broker
        known |= _store_settings(read_store_conf(path, name)) | _retention_settings(_read_broker_conf(path, name))
        if arguments.layout == JMQ:  # it has no delays
            known.pop("delay_levels", None)
    given = {each.name: getattr(arguments, each.name) for each in fields(Settings)}
    return Settings(**known | {name: value for name, value in given.items() if value is not None})


def _store_settings(conf: StoreConf) -> dict[str, object]:
    queue_bytes, segment_bytes, body_bytes = conf.queue_file_size_bytes, conf.segment_size_bytes, conf.max_body_bytes
    batch_bytes = conf.batch_queue_file_size_bytes
    found = {
        "broker": conf.broker_name,
        "flush": None if conf.is_flush_sync is None else "sync" if conf.is_flush_sync else "async",
        "segment_size": segment_bytes,
        "queue_entries": None if queue_bytes is None else queue_bytes // consumequeue.ENTRY.size,
        "batch_queue_entries": None if batch_bytes is None else batch_bytes // batchconsumequeue.ENTRY.size,
        "index_slots": conf.index_slots,
        "index_entries": conf.index_entries,
        "max_message_kib": None if body_bytes is None else max(1, body_bytes // _KIB),
        "delay_levels": None if conf.delay_levels_ms is None else _format_delay_levels(conf.delay_levels_ms),
    }
    return {name: value for name, value in found.items() if value is not None}


def _format_delay_levels(levels_ms: tuple[int, ...]) -> str:
    return " ".join(f"{level // 1000}s" for level in levels_ms)


def _read_broker_conf(path: str, name: str) -> BrokerConf:
    text = read_broker_conf(path, name)
    try:
        return parse_boltmq_conf(text).deletion if is_boltmq_conf(text) else parse_broker_conf(text)
    except BrokerConfError as error:
        raise JobError(f"--broker-conf {path}: {error}") from None


def _retention_settings(conf: BrokerConf) -> dict[str, object]:
    return {
        "reserved_hours": conf.file_reserved_hours,
        "delete_hours": conf.delete_hours,
        "disk_percent": (conf.disk_max_used_percent, conf.clean_forcibly_percent, conf.warning_percent),
    }
