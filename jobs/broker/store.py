"""The broker's store on the command line: its format and its file sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.broker.arguments import BOLTMQ, JMQ, MIB, ROCKETMQ, BrokerArguments
from commitlake.jobs.broker.settings import Settings
from commitlake.jobs.cli.command import JobError
from commitlake.schemas.layouts.rocketmq import batchconsumequeue, consumequeue

if TYPE_CHECKING:
    from commitlake.broker_lite.broker.options import BrokerOptions
    from commitlake.broker_lite.broker.store_interfaces import BrokerStore
    from commitlake.broker_lite.errors import FileSizeError
    from commitlake.broker_lite.stores.engine.options import RetentionOptions
    from commitlake.broker_lite.stores.jmq import JournalOptions
    from commitlake.broker_lite.stores.rocketmq import StoreOptions

_SIZE_ARGUMENTS = {
    "segment_size_bytes": "--segment-size",
    "journal_file_size_bytes": "--segment-size",
    "consume_queue_file_size_bytes": "--queue-file-size",
    "batch_queue_file_size_bytes": "--batch-queue-file-size",
    "queue_file_size_bytes": "--queue-file-size",
}
_DEFAULT_LOG_MIB = {ROCKETMQ: 1024, JMQ: 128, BOLTMQ: 1024}


def open_store(arguments: BrokerArguments, settings: Settings, broker_options: BrokerOptions) -> BrokerStore:
    """Open the store that the command line describes.

    Args:
        settings: values of the options that a broker.conf may set.

    Raises:
        JobError: if the folder has a store of another layout, or an option is not possible with the layout.
        StoreError: if it cannot be opened.
    """
    from commitlake.broker_lite.errors import FileSizeError, IndexSizeError

    if not arguments.store:
        raise JobError("--store: expected the path of a folder, found an empty text")
    try:
        return _open_store_in_layout(arguments, settings, broker_options)
    except FileSizeError as error:
        raise JobError(str(error), _file_size_hint(error)) from None
    except IndexSizeError as error:
        hint = "give --index-slots and --index-entries, or the settings of the broker that wrote it with --broker-conf"
        raise JobError(str(error), hint) from None
    except OSError as error:
        what = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise JobError(
            f"--store {arguments.store}: the store cannot be opened: {what}",
            "name a folder that this user may write to",
        ) from error


def _file_size_hint(error: FileSizeError) -> str:
    """Return a hint that names the arguments which set the store's file sizes."""
    if error.size is None:
        return "its files contradict each other: run 'commitlake verify'"
    option = _SIZE_ARGUMENTS.get(error.option)
    return f"add {option} {error.size}" if option and error.size else ""


def _open_store_in_layout(arguments: BrokerArguments, settings: Settings, broker_options: BrokerOptions) -> BrokerStore:
    from commitlake.broker_lite.broker.store_layouts import FileLayout, detect_layouts
    from commitlake.broker_lite.stores.jmq_adapter import JmqStore
    from commitlake.broker_lite.stores.rocketmq import MessageStore

    layout = FileLayout(arguments.layout)
    found = detect_layouts(Path(arguments.store))
    if layout not in found:
        raise JobError(
            f"--layout {layout} does not fit the store in {arguments.store}, which has the layout {found[0]}",
            f"add --layout {found[0]}, or name another folder",
        )
    if layout is FileLayout.JMQ:
        _check_ipv4_address(arguments, broker_options)
        return JmqStore.open(
            arguments.store,
            _journal_options(arguments, settings, broker_options),
            added_properties=broker_options.added_properties(),
        )
    if layout is FileLayout.BOLTMQ:
        _check_ipv4_address(arguments, broker_options)
    return MessageStore.open(
        arguments.store, _store_options(arguments, settings, broker_options), is_copy=arguments.is_slave
    )


def _check_ipv4_address(arguments: BrokerArguments, broker_options: BrokerOptions) -> None:
    if broker_options.address.is_v6:
        raise JobError(
            f"--listen: expected an IPv4 address for --layout {arguments.layout}, whose records have no room for "
            f"{broker_options.address}",
            "choose another address",
        )


def _segment_size_bytes(arguments: BrokerArguments, settings: Settings) -> int:
    default = _DEFAULT_LOG_MIB[arguments.layout] * MIB
    return default if settings.segment_size is None else settings.segment_size


def _queue_file_size_bytes(arguments: BrokerArguments, settings: Settings, entry_size: int) -> int:
    return arguments.queue_file_size or settings.queue_entries * entry_size


def _batch_queue_file_size_bytes(arguments: BrokerArguments, settings: Settings) -> int:
    return arguments.batch_queue_file_size or settings.batch_queue_entries * batchconsumequeue.ENTRY.size


def _retention_options(settings: Settings) -> RetentionOptions:
    from commitlake.broker_lite.stores.engine.options import RetentionOptions

    return RetentionOptions(settings.reserved_hours, settings.delete_hours, *settings.disk_percent)


def _journal_options(arguments: BrokerArguments, settings: Settings, broker_options: BrokerOptions) -> JournalOptions:
    from commitlake.broker_lite.stores.engine.options import FlushMode
    from commitlake.broker_lite.stores.jmq import JournalOptions
    from commitlake.schemas.layouts.jmq.queue_file import ENTRY

    return JournalOptions(
        journal_file_size_bytes=_segment_size_bytes(arguments, settings),
        queue_file_size_bytes=_queue_file_size_bytes(arguments, settings, ENTRY.size),
        flush_mode=FlushMode(settings.flush),
        max_body_size_bytes=settings.max_message_kib << 10,
        broker_name=broker_options.name,
        server_address=broker_options.address,
        retention=_retention_options(settings),
    )


def _store_options(arguments: BrokerArguments, settings: Settings, broker_options: BrokerOptions) -> StoreOptions:
    from commitlake.broker_lite.broker.store_layouts import DIALECTS, FileLayout
    from commitlake.broker_lite.stores.rocketmq import StoreOptions
    from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS

    return StoreOptions(
        segment_size_bytes=_segment_size_bytes(arguments, settings),
        consume_queue_file_size_bytes=_queue_file_size_bytes(arguments, settings, consumequeue.ENTRY.size),
        batch_queue_file_size_bytes=_batch_queue_file_size_bytes(arguments, settings),
        index_slots=settings.index_slots,
        index_entries=settings.index_entries,
        max_message_size_bytes=settings.max_message_kib << 10,
        message_delay_level=settings.delay_levels or DEFAULT_DELAY_LEVELS,
        store_host=broker_options.address,
        retention=_retention_options(settings),
        dialect=DIALECTS[FileLayout(arguments.layout)],
    )
