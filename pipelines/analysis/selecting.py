"""The choice of messages, from the arguments of a method of `Lake`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypedDict, TypeVar

from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import parse_iso, with_zone

_Value = TypeVar("_Value")
Texts: TypeAlias = str | Iterable[str]
"""One text, or several, of which a message must have one."""
Time: TypeAlias = datetime.datetime | str
"""A time, or its text in ISO 8601; UTC if it has no time zone."""


class Chosen(TypedDict, total=False):
    """Keyword arguments that select messages: a message must match all of them, and any one value of each.

    None, or what is left out, is no condition; an empty list is an error, because it selects nothing.

    Attributes:
        broker: name of the store.
        topic: topic in which the message is stored.
        queue: queue in which it is stored.
        key: business key.
        id: offset message id, or client message id (UNIQ_KEY).
        tag: tag.
        kind: kind of record, such as `normal` or `retry`.
        since: earliest store time.
        until: latest store time, exclusive.
        where: SQL predicate on a row of `messages`, in the dialect of the engine.
    """

    broker: Texts | None
    topic: Texts | None
    queue: int | Iterable[int] | None
    key: Texts | None
    id: Texts | None
    tag: Texts | None
    kind: Texts | None
    since: Time | None
    until: Time | None
    where: str | None


def make_selection(
    *,
    broker: Texts | None = None,
    topic: Texts | None = None,
    queue: int | Iterable[int] | None = None,
    key: Texts | None = None,
    id: Texts | None = None,  # noqa: A002 (the name that callers write)
    tag: Texts | None = None,
    kind: Texts | None = None,
    since: Time | None = None,
    until: Time | None = None,
    where: str | None = None,
) -> Selection:
    """Return the `Selection` for the keyword arguments of `Chosen`.

    Raises:
        UsageError: if a time is not one, or a list is empty or has other values.

    >>> make_selection(topic="orders", queue=[0, 1], since="2026-11-20").values
    [('topic', ['orders']), ('queue_id', [0, 1])]
    """
    return Selection(
        brokers=texts_of("broker", broker),
        topics=texts_of("topic", topic),
        queue_ids=_numbers_of("queue", queue),
        keys=texts_of("key", key),
        ids=texts_of("id", id),
        tags=texts_of("tag", tag),
        kinds=_kinds_of(kind),
        start=_time("since", since),
        end=_time("until", until),
        where=where,
    )


def texts_of(name: str, value: Texts | None) -> Sequence[str]:
    """Return one text, or several, as a list; an empty one for None.

    Args:
        name: name of the argument, for the error.

    Raises:
        UsageError: if the list is empty, or has another value than a text.
    """
    if value is None:
        return []
    return (
        [value] if isinstance(value, str) else _checked_values(name, value, "texts", lambda each: isinstance(each, str))
    )


def _numbers_of(name: str, value: int | Iterable[int] | None) -> Sequence[int]:
    if value is None:
        return []
    return (
        [value]
        if isinstance(value, int)
        else _checked_values(name, value, "whole numbers", lambda each: isinstance(each, int))
    )


def _checked_values(
    name: str, values: Iterable[_Value], expected: str, is_expected: Callable[[object], bool]
) -> list[_Value]:
    found = list(values)
    if not found:
        raise UsageError(f"{name}: expected at least one value, found none; leave it out for all messages")
    for each in found:
        if not is_expected(each):
            raise UsageError(f"{name}: expected {expected}, found {each!r:.50}")
    return found


def _kinds_of(value: Texts | None) -> Sequence[str]:
    kinds = texts_of("kind", value)
    for each in kinds:
        if each not in set(Kind):
            raise UsageError(f"kind: expected some of {', '.join(Kind)}, found {each!r:.50}")
    return kinds


def _time(name: str, value: Time | None) -> datetime.datetime | None:
    try:
        if isinstance(value, datetime.datetime):
            return with_zone(value).astimezone(datetime.UTC)
        if isinstance(value, str):
            return parse_iso(value)
    except (ValueError, OverflowError):
        pass
    if value is None:
        return None
    raise UsageError(f"{name}: expected a time in ISO 8601, such as 2026-11-20T14:00, found {value!r:.50}")
