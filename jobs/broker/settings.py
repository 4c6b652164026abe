"""Settings of `commitlake broker` that no argument sets: from --broker-conf, otherwise the defaults.

A broker that takes over a RocketMQ broker's store must use its file sizes and delay levels, and should keep its
settings of retention and flushing. So these are read from the same broker.conf.
"""

from __future__ import annotations

import argparse

from commitlake.jobs.cli.broker_conf import read_broker_conf, read_store_conf
from commitlake.jobs.cli.command import JobError
from commitlake.schemas.layouts.boltmq.conf import is_boltmq_conf, parse_boltmq_conf
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf, BrokerConfError, parse_broker_conf
from commitlake.schemas.layouts.rocketmq.store_conf import StoreConf

_WITHOUT_DELAYS = "jmq"
_KIB = 1 << 10
DEFAULTS = {
    "broker": "broker-a",
    "flush": "async",
    "queue_entries": 300_000,
    "batch_queue_entries": batchconsumequeue.DEFAULT_FILE_ENTRIES,
    "index_slots": 5_000_000,
    "index_entries": 20_000_000,
    "max_message_kib": 4096,
    "reserved_hours": 72,
    "delete_hours": (4,),
    "disk_percent": (75, 85, 90),
}
"""By the arguments' names; `segment_size` and `delay_levels` follow from the layout."""


def apply_settings(arguments: argparse.Namespace) -> None:
    """Set every argument that was not given to its value in --broker-conf, otherwise to its default.

    Raises:
        JobError: The file cannot be read, or has a value that the broker would not accept.
    """
    known: dict[str, object] = dict(DEFAULTS)
    if arguments.broker_conf:
        path, name = arguments.broker_conf, str(arguments.broker or DEFAULTS["broker"])
        known |= _of_store(read_store_conf(path, name)) | _of_retention(_retention(path, name))
        if arguments.layout == _WITHOUT_DELAYS:
            known.pop("delay_levels", None)
    for argument, value in known.items():
        if getattr(arguments, argument) is None:
            setattr(arguments, argument, value)


def _of_store(conf: StoreConf) -> dict[str, object]:
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
        "delay_levels": None if conf.delay_levels_ms is None else _delay_text(conf.delay_levels_ms),
    }
    return {name: value for name, value in found.items() if value is not None}


def _delay_text(levels_ms: tuple[int, ...]) -> str:
    return " ".join(f"{level // 1000}s" for level in levels_ms)


def _retention(path: str, name: str) -> BrokerConf:
    text = read_broker_conf(path, name)
    try:
        return parse_boltmq_conf(text).deletion if is_boltmq_conf(text) else parse_broker_conf(text)
    except BrokerConfError as error:
        raise JobError(f"--broker-conf {path}: {error}") from None


def _of_retention(conf: BrokerConf) -> dict[str, object]:
    return {
        "reserved_hours": conf.file_reserved_hours,
        "delete_hours": conf.delete_hours,
        "disk_percent": (conf.disk_max_used_percent, conf.clean_forcibly_percent, conf.warning_percent),
    }
