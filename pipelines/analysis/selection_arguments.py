"""The choice of messages, from the arguments of a method of `Lake`.

All methods that choose messages take the same keyword arguments: those of `SelectionArguments`. Type checkers and
editors know them from `Unpack[Chosen]`; `with_selection_signature` shows them to `help()`, and to notebooks, too.
"""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeAlias, TypedDict, TypeGuard, TypeVar, cast

from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import parse_iso, with_time_zone

_Value = TypeVar("_Value")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
Texts: TypeAlias = str | Iterable[str]
"""One text, or several, of which a message must have one."""
Time: TypeAlias = datetime.datetime | str
"""A time, or its text in ISO 8601; UTC if it has no time zone."""


class SelectionArguments(TypedDict, total=False):
    """Keyword arguments that select messages; a message must match each of them, by any one of its values.

    None, or what is left out, is no condition; an empty list is an error, because it selects nothing.

    Attributes:
        broker: Name of the store, or names.
        topic: Topics in which the messages are stored.
        queue: Queues in which they are stored.
        key: Business keys.
        id: Offset message ids, or client message ids (UNIQ_KEY).
        tag: Tags.
        kind: Kinds of record, such as `normal` or `retry`.
        since: Earliest store time: a `datetime` or ISO 8601, UTC without a time zone.
        until: Latest store time, exclusive.
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


_CHOSEN_DOC = "    **chosen: Conditions, see `SelectionArguments`."
"""Line of a docstring that `with_selection_signature` replaces with the arguments."""


def with_selection_signature(method: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Add the arguments of `SelectionArguments` to the signature and docstring of a method that has `**chosen`.

    `help()`, and what notebooks show for a method, would else only have the name `chosen`.
    """
    signature = inspect.signature(method)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in SelectionArguments.__annotations__.items()
    ]
    vars(method)["__signature__"] = signature.replace(parameters=[*own, *shown])
    if method.__doc__ and SelectionArguments.__doc__:  # Python -OO leaves them out
        listed = re.findall(r"^    \w+: .*$", inspect.cleandoc(SelectionArguments.__doc__), re.MULTILINE)
        method.__doc__ = inspect.cleandoc(method.__doc__).replace(_CHOSEN_DOC, "\n".join(listed))
    return method


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
    """Convert the keyword arguments that select messages to a `Selection`.

    Raises:
        UsageError: if a time is not one, or a list is empty or has other values.

    >>> make_selection(topic="orders", queue=[0, 1], since="2026-11-20").column_values
    [('topic', ['orders']), ('queue_id', [0, 1])]
    """
    return Selection(
        brokers=parse_text_arguments("broker", broker),
        topics=parse_text_arguments("topic", topic),
        queue_ids=_parse_values("queue", queue, _is_number, "whole numbers"),
        keys=parse_text_arguments("key", key),
        ids=parse_text_arguments("id", id),
        tags=parse_text_arguments("tag", tag),
        kinds=_parse_kinds(kind),
        start=parse_time_argument("since", since),
        end=parse_time_argument("until", until),
        where=where,
    )


def parse_text_arguments(name: str, value: Texts | None) -> Sequence[str]:
    """Return the given text or texts as a list, which is empty for None.

    Args:
        name: name of the argument, for the error.

    Raises:
        UsageError: if the list is empty, or has another value than a text.
    """
    return _parse_values(name, value, _is_text, "texts")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int)


def _parse_values(
    name: str, value: _Value | Iterable[_Value] | None, is_value: Callable[[object], TypeGuard[_Value]], expected: str
) -> list[_Value]:
    if value is None:
        return []
    found: list[_Value] = [value] if is_value(value) else list(cast("Iterable[_Value]", value))
    if not found:
        raise UsageError(f"{name}: expected at least one value, found none; leave it out for all messages")
    for each in found:
        if not is_value(each):
            raise UsageError(f"{name}: expected {expected}, found {each!r:.50}")
    return found


def _parse_kinds(value: Texts | None) -> Sequence[str]:
    kinds = parse_text_arguments("kind", value)
    for each in kinds:
        if each not in set(Kind):
            raise UsageError(f"kind: expected some of {', '.join(Kind)}, found {each!r:.50}")
    return kinds


def parse_time_argument(name: str, value: Time | None) -> datetime.datetime | None:
    """Convert a time argument to UTC; None stays None.

    Args:
        name: name of the argument, for the error.

    Raises:
        UsageError: if it is no time, or one that tables cannot have.
    """
    try:
        if isinstance(value, datetime.datetime):
            return with_time_zone(value).astimezone(datetime.UTC)
        if isinstance(value, str):
            return parse_iso(value)
    except (ValueError, OverflowError):
        pass
    if value is None:
        return None
    raise UsageError(f"{name}: expected a time in ISO 8601, such as 2026-11-20T14:00, found {value!r:.50}")
