"""Settings of a BoltMQ broker (broker.toml) that control the deletion of segments.

Source: broker/config/parse.go and config.go, broker/server/controller.go, store/persistent/config.go of BoltMQ 1897b02.

    table     key                  default
    broker    delete_when          4     an hour of the day, one
    store     file_reserved_time   48    hours
    cluster   broker_role          SYNC_MASTER

The store has its own defaults: 72 hours, at 04, 75 %. In the source named above, the broker reads and prints the file's
two values, but does not pass them to the store. The effective values thus depend on the version, so `parse_boltmq_conf`
uses both hours of the day, and the smaller of the two ages, which is never too late. Zero means the default, because Go
does not distinguish it from a missing value.

Numbers may have leading zeros, like `delete_when=04` in BoltMQ's own sample, although TOML 1.0 does not allow them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf, BrokerConfError
from commitlake.schemas.toml_text import TomlError, parse_toml

STORE_CONF = BrokerConf()
"""Settings of the store itself, which are the same as RocketMQ's."""
DEFAULT_RESERVED_HOURS, DEFAULT_DELETE_HOUR = 48, 4
_TABLES = ("cluster", "broker", "store", "log")
_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_TABLE_LINE = re.compile(rf"^[ \t]*\[[ \t]*(?:{'|'.join(_TABLES)})[ \t]*\]", re.MULTILINE)
_LEADING_ZEROS = re.compile(r"^([ \t]*[\w-]+[ \t]*=[ \t]*)0+(?=[0-9]+[ \t]*(?:#.*)?\r?$)", re.MULTILINE)
_HOURS_A_DAY = 24
_MAX_SHOWN = 100
_MAX_HOURS = 1 << 31


@dataclass(frozen=True, slots=True)
class BoltmqConf:
    """Settings in a BoltMQ broker.toml that control when the broker deletes segments of its log.

    Attributes:
        deletion: the settings in the form of RocketMQ's settings.
        is_slave: whether the broker is a slave, which copies another broker's log.
    """

    deletion: BrokerConf
    is_slave: bool = False


def is_boltmq_conf(text: str) -> bool:
    """Return whether a text contains BoltMQ's settings; its TOML tables distinguish them from Java properties."""
    return _TABLE_LINE.search(text) is not None


def parse_boltmq_conf(text: str = "") -> BoltmqConf:
    """Parse the settings of a broker.toml; keys that do not control deletion are ignored.

    Args:
        text: content of the file.

    Raises:
        BrokerConfError: if the file is not a valid broker.toml, or the broker would refuse a value.
    """
    document = _parse_document(text)
    hour = _get_number(document, "broker", "delete_when", _HOURS_A_DAY) or DEFAULT_DELETE_HOUR
    hours = _get_number(document, "store", "file_reserved_time", _MAX_HOURS) or DEFAULT_RESERVED_HOURS
    role = _get_setting(document, "cluster", "broker_role") or _ROLES[1]
    if role not in _ROLES:
        raise BrokerConfError(f"cluster.broker_role: expected one of {', '.join(_ROLES)}, found {_shorten(role)}")
    return BoltmqConf(
        BrokerConf(
            file_reserved_hours=min(hours, STORE_CONF.file_reserved_hours),
            delete_hours=tuple(sorted({hour, *STORE_CONF.delete_hours})),
        ),
        is_slave=role == _ROLES[2],
    )


def boltmq_broker_name(text: str) -> str | None:
    """Return `cluster.broker_name` of a broker.toml, or None if it is not set.

    Raises:
        BrokerConfError: if the text is not a valid broker.toml.
    """
    name = _get_setting(_parse_document(text), "cluster", "broker_name")
    if name is not None and not isinstance(name, str):
        raise BrokerConfError(f"cluster.broker_name: expected a string, found {_shorten(name)}")
    return name or None


def _parse_document(text: str) -> dict[str, Any]:
    try:
        document = parse_toml(_LEADING_ZEROS.sub(r"\1", text))
    except TomlError as error:
        raise BrokerConfError(f"expected BoltMQ's settings as TOML, found other text: {error}") from None
    if foreign := [name for name in document if name not in _TABLES]:
        raise BrokerConfError(
            f"expected only the tables {', '.join(_TABLES)} of BoltMQ's settings, found {_shorten(foreign[0])}"
        )
    return document


def _shorten(value: object) -> str:
    """Return a value as text for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _get_setting(document: Mapping[str, Any], table: str, key: str) -> object:
    found = document.get(table, {})
    if not isinstance(found, dict):
        raise BrokerConfError(f"{table}: expected a TOML table, found {_shorten(found)}")
    return found.get(key)


def _get_number(document: Mapping[str, Any], table: str, key: str, limit: int) -> int:
    found = _get_setting(document, table, key)
    if found is None:
        return 0
    if type(found) is not int or not 0 <= found < limit:
        raise BrokerConfError(f"{table}.{key}: expected a number from 0 to {limit - 1}, found {_shorten(found)}")
    return found
