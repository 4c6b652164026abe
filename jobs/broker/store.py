"""The broker's store on the command line: its format and its file sizes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.cli.broker_conf import BrokerConfArgument
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.cli.store_arguments import file_size, positive
from commitlake.schemas.layouts.numbers import INT64_MAX, parse_decimal, parse_int
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue

if TYPE_CHECKING:
    from commitlake.broker_lite.broker.interfaces import BrokerStore
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.errors import FileSizeError
    from commitlake.broker_lite.stores.engine.options import RetentionOptions
    from commitlake.broker_lite.stores.jmq import JournalOptions
    from commitlake.broker_lite.stores.rocketmq import StoreOptions

_MIB = 1 << 20
_ROCKETMQ, _JMQ, _BOLTMQ = "rocketmq", "jmq", "boltmq"
_SIZE_ARGUMENTS = {
    "segment_size_bytes": "--segment-size",
    "journal_file_size_bytes": "--segment-size",
    "consume_queue_file_size_bytes": "--queue-file-size",
    "batch_queue_file_size_bytes": "--batch-queue-file-size",
    "queue_file_size_bytes": "--queue-file-size",
}
_DEFAULT_LOG_MIB = {_ROCKETMQ: 1024, _JMQ: 128, _BOLTMQ: 1024}


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the store."""
    files = parser.add_argument_group("store")
    files.add_argument(
        "--layout", choices=tuple(_DEFAULT_LOG_MIB), default=_ROCKETMQ,
        help="format of the store's files (default: rocketmq); jmq has no delays, transactions, keys or slaves; boltmq "
             "no transactions, timers, keys or slaves",
    )  # fmt: skip
    files.add_argument(
        "--flush",
        choices=("async", "sync"),
        help="answer a send at once, or after the message is on disk (default: async)",
    )
    files.add_argument(
        "--segment-size", type=file_size, metavar="SIZE",
        help="size of a file of the log, as 1073741824 or 1GiB: RocketMQ's mappedFileSizeCommitLog (default: 1GiB; "
             "128MiB for a journal)",
    )  # fmt: skip
    files.add_argument(
        "--queue-file-size", type=file_size, metavar="SIZE",
        help="size of a queue's file: RocketMQ's mappedFileSizeConsumeQueue (default: 6000000; JMQ's: 6600000)",
    )  # fmt: skip
    files.add_argument(
        "--batch-queue-file-size", type=file_size, metavar="SIZE",
        help="size of a queue's file of a topic with queue.type=BatchCQ: RocketMQ's mapperFileSizeBatchConsumeQueue "
             "(default: 13800000)",
    )  # fmt: skip
    _add_older_names(files)
    files.add_argument("--index-slots", type=int, metavar="N", help="hash slots of an index file (default: 5000000)")
    files.add_argument("--index-entries", type=int, metavar="N", help="entries of an index file (default: 20000000)")
    files.add_argument("--max-message-kib", type=positive, metavar="KIB", help="largest size of a body (default: 4096)")
    files.add_argument(
        "--reserved-hours", type=int, metavar="HOURS", help="age at which segments are deleted (default: 72)"
    )
    files.add_argument(
        "--delete-hours", type=_hours, metavar="H,H", help="hours of the day in which segments are deleted (default: 4)"
    )
    files.add_argument(
        "--disk-percent", type=_percents, metavar="P,P,P",
        help="disk usage in percent at which segments are deleted at any hour, at which they are deleted at any age, "
             "and at which new messages are refused (default: 75,85,90)",
    )  # fmt: skip
    files.add_argument(
        "--delay-levels", metavar="LEVELS",
        help="delays of the levels from 1 on, as '1s 5s 10s' (default: RocketMQ's 18 levels)",
    )  # fmt: skip
    add_options(files, BrokerConfArgument)


def _add_older_names(files: argparse._ArgumentGroup) -> None:
    """Add older options of the same sizes, which the help does not show."""
    files.add_argument("--segment-mib", dest="segment_size", type=_mebibytes, help=argparse.SUPPRESS)
    files.add_argument("--queue-entries", type=positive, help=argparse.SUPPRESS)
    files.add_argument("--batch-queue-entries", type=positive, help=argparse.SUPPRESS)


def _hours(text: str) -> tuple[int, ...]:
    hours = [parse_int(part, 0, 23) for part in text.split(",")]
    known = tuple(hour for hour in hours if hour is not None)
    if len(known) < len(hours):
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected hours from 0 to 23 with commas between")
    return known


def _percents(text: str) -> tuple[int, int, int]:
    parts = [parse_int(part, 1, 100) for part in text.split(",")]
    known = [part for part in parts if part is not None]
    if len(parts) != 3 or len(known) != 3:
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected three numbers from 1 to 100 separated by commas")
    first, second, third = known
    if not first <= second <= third:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers in ascending order")
    return first, second, third


def _mebibytes(text: str) -> int:
    size = parse_decimal(text)
    if size is None or not 1 <= size * _MIB <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected a number of MiB")
    return round(size * _MIB)


def open_store(arguments: argparse.Namespace, broker: BrokerOptions) -> BrokerStore:
    """Open the store that the command line describes.

    Args:
        arguments: the arguments of `add_store_arguments`, and the broker's.

    Raises:
        JobError: if the folder has a store of another layout, or an option is not possible with the layout.
        StoreError: if it cannot be opened.
    """
    from commitlake.broker_lite.errors import FileSizeError, IndexSizeError

    if not arguments.store:
        raise JobError("--store: expected a folder, found nothing")
    try:
        return _open(arguments, broker)
    except FileSizeError as error:
        raise JobError(str(error), _size_hint(error)) from None
    except IndexSizeError as error:
        hint = "give --index-slots and --index-entries, or the settings of the broker that wrote it with --broker-conf"
        raise JobError(str(error), hint) from None
    except OSError as error:
        what = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise JobError(
            f"--store {arguments.store}: cannot be opened: {what}", "name a folder that this user may write to"
        ) from error


def _size_hint(error: FileSizeError) -> str:
    """Return a hint that names the arguments which set the store's file sizes."""
    if error.size is None:
        return "its files contradict each other: run 'commitlake verify'"
    option = _SIZE_ARGUMENTS.get(error.option)
    return f"add {option} {error.size}" if option and error.size else ""


def _open(arguments: argparse.Namespace, broker: BrokerOptions) -> BrokerStore:
    from commitlake.broker_lite.broker.layouts import FileLayout, layouts_of
    from commitlake.broker_lite.stores.jmq_adapter import JmqStore
    from commitlake.broker_lite.stores.rocketmq import MessageStore

    layout = FileLayout(arguments.layout)
    found = layouts_of(Path(arguments.store))
    if layout not in found:
        raise JobError(
            f"--layout {layout}: {arguments.store} holds a store in the layout {found[0]}",
            f"add --layout {found[0]}, or name another folder",
        )
    if layout is FileLayout.JMQ:
        _check_jmq(arguments, broker)
        return JmqStore.open(arguments.store, _journal_options(arguments, broker), marks=broker.marks())
    if layout is FileLayout.BOLTMQ:
        _check_boltmq(arguments, broker)
    is_slave = arguments.role == "SLAVE"
    return MessageStore.open(arguments.store, _store_options(arguments, broker), is_copy=is_slave)


def _check_jmq(arguments: argparse.Namespace, broker: BrokerOptions) -> None:
    if arguments.role != "ASYNC_MASTER" or arguments.ha_listen:
        raise JobError("--layout jmq: its journal cannot be copied to slaves", "leave out --role and --ha-listen")
    if arguments.delay_levels:
        raise JobError("--layout jmq: it has no delayed messages", "leave out --delay-levels")
    _check_v4(arguments, broker)


def _check_boltmq(arguments: argparse.Namespace, broker: BrokerOptions) -> None:
    if arguments.role != "ASYNC_MASTER" or arguments.ha_listen:
        raise JobError("--layout boltmq: its log cannot be copied to slaves", "leave out --role and --ha-listen")
    _check_v4(arguments, broker)


def _check_v4(arguments: argparse.Namespace, broker: BrokerOptions) -> None:
    if broker.address.is_v6:
        raise JobError(
            f"--listen: expected an IPv4 address for --layout {arguments.layout}, whose records cannot hold "
            f"{broker.address}",
            "choose another address",
        )


def _segment_bytes(arguments: argparse.Namespace) -> int:
    default = _DEFAULT_LOG_MIB[arguments.layout] * _MIB
    return default if arguments.segment_size is None else int(arguments.segment_size)


def _queue_file_bytes(arguments: argparse.Namespace, entry_size: int) -> int:
    return int(arguments.queue_file_size or arguments.queue_entries * entry_size)


def _batch_queue_file_bytes(arguments: argparse.Namespace) -> int:
    return int(arguments.batch_queue_file_size or arguments.batch_queue_entries * batchconsumequeue.ENTRY.size)


def _retention(arguments: argparse.Namespace) -> RetentionOptions:
    from commitlake.broker_lite.stores.engine.options import RetentionOptions

    return RetentionOptions(arguments.reserved_hours, arguments.delete_hours, *arguments.disk_percent)


def _journal_options(arguments: argparse.Namespace, broker: BrokerOptions) -> JournalOptions:
    from commitlake.broker_lite.stores.engine.options import FlushMode
    from commitlake.broker_lite.stores.jmq import JournalOptions
    from commitlake.schemas.layouts.jmq.queue import ENTRY

    return JournalOptions(
        journal_file_size_bytes=_segment_bytes(arguments),
        queue_file_size_bytes=_queue_file_bytes(arguments, ENTRY.size),
        flush_mode=FlushMode(arguments.flush),
        max_body_size_bytes=arguments.max_message_kib << 10,
        broker_name=broker.name,
        server_address=broker.address,
        retention=_retention(arguments),
    )


def _store_options(arguments: argparse.Namespace, broker: BrokerOptions) -> StoreOptions:
    from commitlake.broker_lite.broker.layouts import DIALECTS, FileLayout
    from commitlake.broker_lite.stores.rocketmq import StoreOptions
    from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS

    return StoreOptions(
        segment_size_bytes=_segment_bytes(arguments),
        consume_queue_file_size_bytes=_queue_file_bytes(arguments, consumequeue.ENTRY.size),
        batch_queue_file_size_bytes=_batch_queue_file_bytes(arguments),
        index_slots=arguments.index_slots,
        index_entries=arguments.index_entries,
        max_message_size_bytes=arguments.max_message_kib << 10,
        message_delay_level=arguments.delay_levels or DEFAULT_DELAY_LEVELS,
        store_host=broker.address,
        retention=_retention(arguments),
        dialect=DIALECTS[FileLayout(arguments.layout)],
    )
