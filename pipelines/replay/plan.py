"""Plan of a replay: the messages to send and their target. It is fixed before the first message is sent.

The table `replays` has the plan as JSON. Anyone who can write to the lake can change that text. Every field is
therefore checked before anything is sent.
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from commitlake.pipelines.replay.errors import ReplayError
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, INT64_MAX, int_in_range
from commitlake.schemas.times import parse_iso

VERSION = 3
_MAX_BATCH_BYTES = 16 << 20
_MAX_NUMBER = 1e9
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
            f"the plan has version {_shorten_repr(version)}, and this program reads version {VERSION}. Resume the "
            "replay with the program that planned it"
        )
    _integer_field(fields, "version", VERSION, VERSION)
    return ReplayPlan(
        replay_id=_matching_field(fields, "replay_id", _REPLAY_ID),
        created_at=_time_field(fields, "created_at"),
        condition=_text_field(fields, "condition"),
        parts=tuple(
            tuple(_parse_log_range(stretch) for stretch in _check_list(part, "a part"))
            for part in _check_list(fields.get("parts"), "parts")
        ),
        messages=_integer_field(fields, "messages"),
        bytes=_integer_field(fields, "bytes"),
        limit=_integer_field(fields, "limit"),
        target=_parse_target(_check_object(fields.get("target"), "target")),
        batch_bytes=_integer_field(fields, "batch_bytes", 1, _MAX_BATCH_BYTES),
        command=_text_field(fields, "command"),
        is_changed=_bool_field(fields, "is_changed"),
        selection=_text_field(fields, "selection"),
        rate=_number_field(fields, "rate"),
        speed=_number_field(fields, "speed"),
        lag_limit=None if fields.get("lag_limit") is None else _parse_lag_limit(fields["lag_limit"]),
    )


def _parse_target(fields: dict[str, Any]) -> Target:
    mapping = _text_field(fields, "mapping")
    if mapping not in list(QueueMapping):
        raise _field_error("mapping", f"one of {', '.join(QueueMapping)}", mapping)
    return Target(
        name_servers=_text_field(fields, "name_servers"),
        topic=None if fields.get("topic") is None else _text_field(fields, "topic"),
        mapping=QueueMapping(mapping),
        queues=tuple(_parse_queue_end(queue) for queue in _check_list(fields.get("queues"), "queues")),
    )


def _parse_lag_limit(values: object) -> tuple[str, int]:
    found = dict(zip(("group", "messages"), _check_list_size(values, 2, "lag_limit"), strict=True))
    return _text_field(found, "group"), _integer_field(found, "messages")


def _parse_log_range(values: object) -> LogRange:
    found = dict(
        zip(LogRange._fields, _check_list_size(values, len(LogRange._fields), "a range of a log"), strict=True)
    )
    return LogRange(_text_field(found, "broker"), _integer_field(found, "start"), _integer_field(found, "end"))


def _parse_queue_end(values: object) -> QueueEnd:
    found = dict(zip(QueueEnd._fields, _check_list_size(values, len(QueueEnd._fields), "a queue"), strict=True))
    return QueueEnd(
        _text_field(found, "topic"),
        _text_field(found, "broker"),
        _integer_field(found, "queue_id", 0, INT32_MAX),
        _integer_field(found, "offset"),
    )


def _check_list_size(values: object, size: int, name: str) -> list[Any]:
    found = _check_list(values, name)
    if len(found) != size:
        raise _field_error(name, f"{size} values", values)
    return found


def _check_object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _field_error(name, "an object", value)
    return value


def _check_list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _field_error(name, "a list that is not empty", value)
    return value


def _text_field(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _field_error(name, "a text", value)
    return value


def _bool_field(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise _field_error(name, "true or false", value)
    return value


def _matching_field(fields: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = _text_field(fields, name)
    if not pattern.fullmatch(value):
        raise _field_error(name, f"a text like {pattern.pattern}", value)
    return value


def _time_field(fields: dict[str, Any], name: str) -> datetime.datetime:
    try:
        return parse_iso(_text_field(fields, name))
    except (ValueError, OverflowError):
        raise _field_error(name, "a time", fields[name]) from None


def _integer_field(fields: dict[str, Any], name: str, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    value = int_in_range(fields.get(name), minimum, maximum)
    if value is None:
        raise _field_error(name, f"a whole number from {minimum} to {maximum}", fields.get(name))
    return value


def _number_field(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_NUMBER:
        raise _field_error(name, "a number of at least 0", value)
    return float(value)


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
