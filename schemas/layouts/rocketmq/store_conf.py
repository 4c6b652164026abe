"""Settings of a broker that determine the content and the file sizes of its store.

A broker.conf is a Java properties file (`broker_conf`). Keys used here, with the defaults of MessageStoreConfig and
BrokerConfig of RocketMQ 4.9.7 and 5.5.0:

    key                                default
    brokerName                         the machine's host name
    messageDelayLevel                  1s 5s 10s 30s 1m 2m ... 2h, see `delay_levels`
    mappedFileSizeCommitLog            1073741824   bytes of a segment
    mappedFileSizeConsumeQueue         6000000      bytes of a ConsumeQueue file
    mapperFileSizeBatchConsumeQueue    13800000     bytes of a BatchConsumeQueue file (5.x)
    maxHashSlotNum                     5000000      slots of an IndexFile
    maxIndexNum                        20000000     entries of an IndexFile
    maxMessageSize                     4194304      bytes of the largest body
    flushDiskType                      ASYNC_FLUSH  or SYNC_FLUSH: when a send is answered

Only the broker's name is read from BoltMQ's broker.toml, which has no settings for sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitlake.schemas.layouts.boltmq.deletion_settings import boltmq_broker_name, is_boltmq_conf
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, NumberError, require_int
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConfError, parse_delay_levels, parse_properties

_MAX_SHOWN = 100
_FLUSH_TYPES = {"ASYNC_FLUSH": False, "SYNC_FLUSH": True}


@dataclass(frozen=True, slots=True)
class StoreConf:
    """Settings of a store in a broker.conf; None for a key that is not set.

    Attributes:
        broker_name: `brokerName`.
        delay_levels_ms: `messageDelayLevel`, milliseconds of levels 1, 2, 3, ...
        segment_size_bytes: `mappedFileSizeCommitLog`.
        queue_file_size_bytes: `mappedFileSizeConsumeQueue`.
        batch_queue_file_size_bytes: `mapperFileSizeBatchConsumeQueue`.
        index_slots: `maxHashSlotNum`.
        index_entries: `maxIndexNum`.
        max_body_bytes: `maxMessageSize`.
        is_flush_sync: whether `flushDiskType` is SYNC_FLUSH.
    """

    broker_name: str | None = None
    delay_levels_ms: tuple[int, ...] | None = None
    segment_size_bytes: int | None = None
    queue_file_size_bytes: int | None = None
    batch_queue_file_size_bytes: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    max_body_bytes: int | None = None
    is_flush_sync: bool | None = None


def parse_store_conf(text: str) -> StoreConf:
    """Parse a broker.conf or a BoltMQ broker.toml; other keys are ignored.

    Args:
        text: content of the file, decoded as ISO 8859-1.

    Raises:
        BrokerConfError: if the broker would not accept a value.
    """
    if is_boltmq_conf(text):
        return StoreConf(broker_name=parse_broker_name(text))
    settings = parse_properties(text)
    return StoreConf(
        broker_name=_broker_name(settings),
        delay_levels_ms=_delay_levels(settings),
        segment_size_bytes=_get_positive_number(settings, "mappedFileSizeCommitLog"),
        queue_file_size_bytes=_get_positive_number(settings, "mappedFileSizeConsumeQueue"),
        batch_queue_file_size_bytes=_get_positive_number(settings, "mapperFileSizeBatchConsumeQueue"),
        index_slots=_get_positive_number(settings, "maxHashSlotNum"),
        index_entries=_get_positive_number(settings, "maxIndexNum"),
        max_body_bytes=_get_positive_number(settings, "maxMessageSize"),
        is_flush_sync=_is_flush_sync(settings),
    )


def parse_broker_name(text: str) -> str | None:
    """Return only the broker's name from a broker.conf or broker.toml, and ignore all other settings.

    Args:
        text: content of a broker.conf or a broker.toml, decoded as ISO 8859-1.

    Returns:
        The name, or None if it is not set.

    Raises:
        BrokerConfError: if the text is an invalid broker.toml.
    """
    return boltmq_broker_name(text) if is_boltmq_conf(text) else _broker_name(parse_properties(text))


def _broker_name(settings: Mapping[str, str]) -> str | None:
    return settings.get("brokerName") or None


def _delay_levels(settings: Mapping[str, str]) -> tuple[int, ...] | None:
    text = settings.get("messageDelayLevel")
    if text is None:
        return None
    try:
        return parse_delay_levels(text)
    except ValueError as error:
        raise BrokerConfError(f"messageDelayLevel: {error}") from None


def _is_flush_sync(settings: Mapping[str, str]) -> bool | None:
    text = settings.get("flushDiskType")
    if text not in {None, *_FLUSH_TYPES}:
        raise BrokerConfError(f"flushDiskType: expected {' or '.join(_FLUSH_TYPES)}, found {str(text)[:_MAX_SHOWN]!r}")
    return None if text is None else _FLUSH_TYPES[text]


def _get_positive_number(settings: Mapping[str, str], key: str) -> int | None:
    text = settings.get(key)
    if text is None:
        return None
    try:
        return require_int(text, key, 1, INT32_MAX)
    except NumberError as error:
        raise BrokerConfError(str(error)) from None
