"""File `config/consumerFilter.json`: filters of groups that do not subscribe by tags, mostly SQL92.

    {"filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"billing":{
        "consumerGroup":"billing","topic":"orders","expression":"price > 100","expressionType":"SQL92",
        "bornTime":1700000000000,"deadTime":0,"clientVersion":1700000000000}}}}}

A filter is dead if `deadTime` is not before `bornTime`: its group has no client with this subscription. It still shows
which of the waiting messages the group wants, and a broker drops it after a day. A broker keeps the file if it has
`enablePropertyFilter=true`. Source: org.apache.rocketmq.broker.filter.ConsumerFilterManager (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commitlake.connectors.formats.config_files import note_backup, read_config
from commitlake.connectors.log_format.small_files import Problems, StoredSubscription
from commitlake.schemas.layouts.numbers import INT64_MAX, int_within
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.store_files import UnsafeFileError

CONSUMER_FILTERS = "config/consumerFilter.json"
_TABLE = "filterDataByTopic"


def read_consumer_filters(root: Path, problems: Problems, *, is_live: bool) -> tuple[StoredSubscription, ...]:
    """Return the filters, including those of groups without clients.

    Args:
        root: The store's folder.
        problems: Collects the problems of the store's files.
        is_live: Whether a broker has the store open.

    Returns:
        The filters; empty if the file does not exist, as for a broker without filters, or cannot be read.
    """
    try:
        found = read_config(root, CONSUMER_FILTERS, _parse)
    except UnsafeFileError:
        return ()
    if found.is_backup:
        note_backup(problems, CONSUMER_FILTERS, found, f"JSON with {_TABLE}", is_live=is_live)
    return tuple(sorted(_filters(found.content))) if found.content else ()


def _parse(data: bytes) -> dict[Any, Any]:
    document = parse_fastjson(data)
    table = document.get(_TABLE) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"JSON without {_TABLE}")  # noqa: TRY004 (of the parsed file)
    return table


def _filters(table: dict[Any, Any]) -> Iterator[StoredSubscription]:
    for topic, entry in table.items():
        groups = entry.get("groupFilterData") if isinstance(entry, dict) else None
        for group, data in groups.items() if isinstance(groups, dict) else ():
            if not isinstance(data, dict) or not data.get("expression") or not data.get("expressionType"):
                continue
            version, born = (int_within(data.get(name), 0, INT64_MAX) or 0 for name in ("clientVersion", "bornTime"))
            expression_type, expression = str(data["expressionType"]), str(data["expression"])
            yield StoredSubscription(str(topic), str(group), expression_type, expression, version or born)
