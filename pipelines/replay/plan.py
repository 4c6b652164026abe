"""Plan of a replay: the messages to send and their target. It is fixed before the first message is sent.

The table `replays` has the plan as JSON. Anyone who can write to the lake can change that text. Every field is
therefore checked before anything is sent, by the type that its class declares.
"""

from __future__ import annotations

import datetime
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from commitlake.pipelines.replay.errors import ReplayError
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, INT64_MAX, int_in_range
from commitlake.schemas.times import parse_iso

VERSION = 3
_RANGES = {"batch_bytes": (1, 16 << 20), "queue_id": (0, INT32_MAX)}
"""Ranges of whole numbers by field; others may be up to 2^63-1."""
_MAX_NUMBER = 1e9
_field_types = cache(get_type_hints)
TARGET_TIMEOUT = datetime.timedelta(minutes=10)
_MAX_SHOWN = 100
_REPLAY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class QueueMapping(StrEnum):
    """Rule by which each message gets a queue of the target."""

    SAME = "same"
    """The queue of the same number, on the broker of the same name, or on one that its name determines."""
    KEY = "key"
    """By a hash of the message's first key: messages of one key share a queue."""
    SHARDING_KEY = "sharding-key"
    """By a hash of the property `__SHARDINGKEY`, which ordered producers set."""


class LogRange(NamedTuple):
    """Range of physical offsets in one store's log; the end is exclusive."""

    broker: str
    start: int
    end: int


class QueueEnd(NamedTuple):
    """Queue of the target, with its end offset when the plan was made."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRequest:
    """Request to send messages: where to, how fast, and under which conditions.

    Attributes:
        name: id of the replay; None for a new one.
        name_servers: name servers of the target, `host:port` of each, separated by semicolons; None for none.
        target_topic: topic for all messages; None for the original topic of each.
        mapping: rule that assigns messages to queues of the target.
        limit: number of messages to send, the first ones; 0 for all.
        rate: largest number of messages per second; None for that of the replay so far, which is at first no limit.
        speed: factor of the pace at which they were stored; None for that of the replay so far, which is at first no
            such limit.
        lag_limit: a group, and the largest number of messages that it may have to consume; None for that of the plan.
        target_timeout: time for which the target may not answer, or may refuse everything.
        accepts_unfinished: True to send messages of another replay to the same target that has not finished.
    """

    name: str | None = None
    name_servers: str | None = None
    target_topic: str | None = None
    mapping: QueueMapping = QueueMapping.SAME
    limit: int = 0
    rate: float | None = None
    speed: float | None = None
    lag_limit: tuple[str, int] | None = None
    target_timeout: datetime.timedelta = TARGET_TIMEOUT
    accepts_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Cluster, topics and queues to which a replay sends.

    Attributes:
        name_servers: `host:port` of each, separated by semicolons.
        topic: topic for all messages; None for the original topic of each.
        mapping: rule that assigns messages to queues.
        queues: queues of all topics that receive messages.
    """

    name_servers: str
    topic: str | None
    mapping: QueueMapping
    queues: tuple[QueueEnd, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Plan of a replay: the messages to send, their order, and the queues they are sent to.

    Attributes:
        replay_id: id of the replay.
        created_at: time at which the plan was made, UTC.
        condition: SQL condition on rows of `messages` that are sent.
        parts: each a few ranges of logs, in the order of sending.
        messages: number of rows of `messages` in the parts, before `limit`.
        bytes: size of their stored records.
        limit: number of messages to send, the first ones; 0 for all.
        target: target of the messages.
        batch_bytes: maximum size of a batch; a larger message is a batch of its own.
        command: the selection in words, for users.
        is_changed: True if the messages are in `replay_rows`, as they are sent; the condition then applies to that
            table.
        rate: initial limit in messages per second; 0 for no limit.
        speed: factor of the original pace; 0 for no such limit.
        lag_limit: a group, and the largest number of messages that it may have to consume; None for no such limit.
        selection: SQL condition on rows of `messages` by which they were chosen, before any change.
    """

    replay_id: str
    created_at: datetime.datetime
    condition: str
    parts: tuple[tuple[LogRange, ...], ...]
    messages: int
    bytes: int
    limit: int
    target: Target
    batch_bytes: int
    command: str = ""
    is_changed: bool = False
    selection: str = ""
    rate: float = 0.0
    speed: float = 0.0
    lag_limit: tuple[str, int] | None = None

    @property
    def messages_to_send(self) -> int:
        """Number of messages to send."""
        return min(self.messages, self.limit) if self.limit else self.messages


_EXPECTED = {
    str: "a text",
    int: "a whole number",
    float: f"a number from 0 to {_MAX_NUMBER:,.0f}",
    bool: "true or false",
    datetime.datetime: "a time",
    QueueMapping: f"one of {', '.join(QueueMapping)}",
}
"""The types of single values, and what is expected of each."""


def plan_to_json(plan: ReplayPlan) -> str:
    """Serialize a plan to JSON."""
    fields = asdict(plan) | {"created_at": plan.created_at.isoformat()}
    return json.dumps({"version": VERSION} | fields, ensure_ascii=False)


def plan_from_json(text: str) -> ReplayPlan:
    """Parse a plan from JSON.

    Raises:
        ReplayError: if this version cannot read the plan.
    """
    try:
        fields = _check_object(json.loads(text), "the plan")
    except (ValueError, RecursionError) as error:
        raise _plan_error(_shorten_repr(str(error))) from None
    version = fields.get("version")
    if type(version) is int and version != VERSION:
        raise ReplayError(
            f"the plan of the replay has version {_shorten_repr(version)}, but this version of CommitLake reads "
            f"version {VERSION}. Resume the replay with the version that planned it"
        )
    if version != VERSION:
        raise _field_error("version", str(VERSION), version)
    plan: ReplayPlan = _parse_value(fields, ReplayPlan, "the plan")
    if not _REPLAY_ID.fullmatch(plan.replay_id):
        raise _field_error("replay_id", f"a text like {_REPLAY_ID.pattern}", plan.replay_id)
    return plan


def _parse_value(value: Any, kind: Any, name: str) -> Any:
    """Return a value of JSON as the type with which a class of this module declares it.

    Args:
        kind: type of a field, or one of these classes.
        name: name of the field, for errors.
    """
    if kind in _EXPECTED:
        return _parse_scalar(value, kind, name)
    if isinstance(kind, UnionType):
        return None if value is None else _parse_value(value, get_args(kind)[0], name)
    if kind in (ReplayPlan, Target):
        fields, kinds = _check_object(value, name), _field_types(kind)
        return kind(**{each: _parse_value(fields.get(each), kinds[each], each) for each in kinds})
    if get_origin(kind) is tuple:
        return _parse_tuple(value, get_args(kind), name)
    types = _field_types(kind)  # of a named tuple
    return kind(*map(_parse_value, _check_list(value, name, len(types)), types.values(), types))


def _parse_tuple(value: Any, kinds: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if kinds[-1] is Ellipsis:
        return tuple(_parse_value(each, kinds[0], name) for each in _check_list(value, name))
    found = zip(_check_list(value, name, len(kinds)), kinds, strict=True)
    return tuple(_parse_value(each, kind, name) for each, kind in found)


def _parse_scalar(value: Any, kind: Any, name: str) -> Any:
    minimum, maximum = _RANGES.get(name, (0, INT64_MAX))
    found = value if type(value) is kind else None
    if kind is int:
        found = int_in_range(value, minimum, maximum)
    elif kind is float:
        found = float(value) if type(value) in (int, float) and 0 <= value <= _MAX_NUMBER else None
    elif kind is QueueMapping:
        found = next((one for one in QueueMapping if one == value), None)
    elif kind is bool and value is None:  # added later than the others
        found = False
    elif kind is datetime.datetime and isinstance(value, str):
        with suppress(ValueError, OverflowError):
            found = parse_iso(value)
    if found is None:
        within = f" from {minimum} to {maximum}" if kind is int else ""
        raise _field_error(name, _EXPECTED[kind] + within, value)
    return found


def _check_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _field_error(name, "an object", value)
    return value


def _check_list(value: Any, name: str, size: int = 0) -> list[Any]:
    if not isinstance(value, list) or not value or len(value) != (size or len(value)):
        raise _field_error(name, f"a list of {size} values" if size else "a list that is not empty", value)
    return value


def _field_error(name: str, expected: str, found: object) -> ReplayError:
    return _plan_error(f"{name}: expected {expected}, found {_shorten_repr(found)}")


def _plan_error(reason: str) -> ReplayError:
    return ReplayError(f"the plan in the table 'replays' cannot be read: {reason}")


def _shorten_repr(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        return "a number of too many digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
