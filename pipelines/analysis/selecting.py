"""The choice of messages, from the arguments of a method of `Lake`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypedDict

from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import parse_iso, with_zone

Texts: TypeAlias = str | Iterable[str]
"""One text, or several, of which a message must have one."""
Time: TypeAlias = datetime.datetime | str
"""A time, or its text in ISO 8601; UTC if it has no time zone."""


class Chosen(TypedDict, total=False):
    """Conditions on messages, all of which must hold; each may have several values, of which one must hold.

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

    broker: Texts
    topic: Texts
    queue: int | Iterable[int]
    key: Texts
    id: Texts
    tag: Texts
    kind: Texts
    since: Time | None
    until: Time | None
    where: str | None


def make_selection(
    *,
    broker: Texts = (),
    topic: Texts = (),
    queue: int | Iterable[int] = (),
    key: Texts = (),
    id: Texts = (),  # noqa: A002 (the name that callers write)
    tag: Texts = (),
    kind: Texts = (),
    since: Time | None = None,
    until: Time | None = None,
    where: str | None = None,
) -> Selection:
    """Return the selection of `Chosen`.

    Raises:
        UsageError: if a time is not one.

    >>> make_selection(topic="orders", queue=[0, 1], since="2026-11-20").values
    [('topic', ['orders']), ('queue_id', [0, 1])]
    """
    return Selection(
        brokers=texts_of(broker),
        topics=texts_of(topic),
        queue_ids=[queue] if isinstance(queue, int) else list(queue),
        keys=texts_of(key),
        ids=texts_of(id),
        tags=texts_of(tag),
        kinds=texts_of(kind),
        start=_time("since", since),
        end=_time("until", until),
        where=where,
    )


def texts_of(value: Texts) -> Sequence[str]:
    """Return one text, or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def _time(name: str, value: Time | None) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None if value is None else with_zone(value)
    try:
        return parse_iso(value)
    except (ValueError, OverflowError):
        expected = "expected a time in ISO 8601, such as 2026-11-20T14:00"
        raise UsageError(f"{name}: {expected}, found {value!r}") from None
