"""Families of records that a message leaves in a broker's log, for a growing store, and the steps between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from tests.support.lakes import GrowingLake
from tests.support.logs import BROKER_HOST, START_MS, new_message

TOPIC, GROUP = "orders", "shop"
COMMIT_FLAG = 0x8
Step = tuple[Any, ...]


def record(unique_key: str | None, topic: str = TOPIC, seconds: float = 0, **more: Any) -> NewMessage:
    """Return a record of a message, stored a number of seconds after the beginning.

    Args:
        unique_key: unique key of the message.
        topic: topic in which it is stored.
        seconds: store time, in seconds after the beginning.
        more: fields of `NewMessage`; properties are a mapping.
    """
    properties = {"UNIQ_KEY": unique_key, **more.pop("properties", {})}
    pairs = tuple((name, str(value)) for name, value in properties.items() if value is not None)
    values = {"queue_id": 0, "born_timestamp": START_MS + int(seconds * 1000), "properties": pairs, **more}
    return new_message(0, topic=topic, **values)


def offset_id(offset: int) -> str:
    """Return the offset message id of the record at an offset."""
    return serialize_message_id(BROKER_HOST, offset)


def delayed(unique_key: str | None, seconds: float = 0, level: int = 3, topic: str = TOPIC, **more: Any) -> NewMessage:
    """Return a record that waits in a schedule topic."""
    properties = {"DELAY": level, "REAL_TOPIC": topic, "REAL_QID": 0, **more.pop("properties", {})}
    return record(unique_key, SCHEDULE_TOPIC, seconds, queue_id=level - 1, properties=properties, **more)


def delivered(unique_key: str, seconds: float = 0, level: int = 3, topic: str = TOPIC, **more: Any) -> NewMessage:
    """Return the delivered copy of a delayed record."""
    properties = {"DELAY": level, "REAL_TOPIC": topic, "REAL_QID": 0, **more.pop("properties", {})}
    return record(unique_key, topic, seconds, properties=properties, **more)


def timed(unique_key: str, seconds: float = 0, due_ms: int = START_MS + 60_000, **more: Any) -> NewMessage:
    """Return a record that waits in the topic of timers."""
    properties = {"TIMER_OUT_MS": due_ms, "REAL_TOPIC": TOPIC, "REAL_QID": 0, **more.pop("properties", {})}
    return record(unique_key, TIMER_TOPIC, seconds, properties=properties, **more)


def timer_delivered(unique_key: str, seconds: float = 60, due_ms: int = START_MS + 60_000) -> NewMessage:
    """Return the copy of a record, delivered by a timer."""
    return record(unique_key, TOPIC, seconds, properties={"TIMER_OUT_MS": due_ms, "REAL_TOPIC": TOPIC, "REAL_QID": 0})


def failed(unique_key: str, attempt: int, origin: int, seconds: float = 0, group: str = GROUP) -> list[NewMessage]:
    """Return the two records of a retry: the waiting one and its copy."""
    properties = {"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": offset_id(origin)}
    arguments: dict[str, Any] = {"level": attempt + 2, "topic": f"%RETRY%{group}", "reconsume_times": attempt}
    first = delayed(unique_key, seconds, properties=properties, **arguments)
    return [first, delivered(unique_key, seconds + 10, properties=properties, **arguments)]


def dead(unique_key: str, attempt: int, origin: int, seconds: float = 0, group: str = GROUP) -> NewMessage:
    """Return a dead letter."""
    properties = {"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": offset_id(origin), "DELAY": 0}
    return record(unique_key, f"%DLQ%{group}", seconds, reconsume_times=attempt, properties=properties)


def half(unique_key: str, seconds: float = 0, checks: int | None = None) -> NewMessage:
    """Return a half message."""
    properties = {"TRAN_MSG": "true", "REAL_TOPIC": TOPIC, "REAL_QID": 0, "TRANSACTION_CHECK_TIMES": checks}
    return record(unique_key, HALF_TOPIC, seconds, properties=properties)


def committed(unique_key: str, prepared: int, seconds: float = 0) -> NewMessage:
    """Return the copy of a committed half message."""
    return record(
        unique_key, TOPIC, seconds, sys_flag=COMMIT_FLAG, prepared_transaction_offset=prepared,
        properties={"TRAN_MSG": "true", "PGROUP": "producers"},
    )  # fmt: skip


def op(halves: Sequence[int], seconds: float = 0) -> NewMessage:
    """Return an op record, which names half messages by their queue offsets."""
    body = "".join(f"{number}," for number in halves).encode()
    return record(None, OP_TOPIC, seconds, body=body, properties={"TAGS": "d"})


def given_up(unique_key: str, seconds: float = 0) -> NewMessage:
    """Return the copy of a half message that its producer never finished."""
    return record(unique_key, GIVEN_UP_TOPIC, seconds, properties={"TRAN_MSG": "true"})


def trace(*records: Sequence[object], seconds: float = 0) -> NewMessage:
    """Return a trace message."""
    body = "".join("\x01".join(map(str, columns)) + "\x02" for columns in records).encode()
    return record(None, TRACE_TOPIC, seconds, body=body)


def pub(unique_key: str, offset: int | None, seconds: float = 0, *, succeeded: bool = True) -> list[object]:
    """Return the trace entry of a sent message."""
    message_id = "null" if offset is None else offset_id(offset)
    told = str(succeeded).lower()
    return ["Pub", _ms(seconds), "R", "producers", TOPIC, unique_key, "tag", "key", "h", 5, 3, 0, message_id, told]


def begun(unique_key: str, request: str, attempt: int = 0, seconds: float = 0, group: str = GROUP) -> list[object]:
    """Return the trace entry of the start of a consumption."""
    return ["SubBefore", _ms(seconds), "R", group, request, unique_key, attempt, "key"]


def ended(unique_key: str, request: str, code: int = 0, seconds: float = 0, group: str = GROUP) -> list[object]:
    """Return the trace entry of the end of a consumption."""
    return ["SubAfter", request, unique_key, 7, str(code == 0).lower(), "key", code, _ms(seconds), group]


def decided(unique_key: str, state: str, seconds: float = 0) -> list[object]:
    """Return the trace entry of a producer's decision on a half message."""
    columns = ["EndTransaction", _ms(seconds), "R", "producers", TOPIC, unique_key, "tag", "key", "h", 2, unique_key]
    return [*columns, state, "false"]


def _ms(seconds: float) -> int:
    return START_MS + int(seconds * 1000)


@dataclass
class Family:
    """A growing store whose records have numbers.

    Attributes:
        growing: the store and its lake.
        places: physical offset of each record, in order.
    """

    growing: GrowingLake
    places: list[int]

    def write(self, *messages: NewMessage) -> int:
        """Store records, and return the number of the first one."""
        first = len(self.growing.log)
        for message in messages:
            self.places.append(len(self.growing.log))
            self.growing.write([message])
        return first

    def steps(self, lake: Lake | None = None) -> list[Step]:
        """Return the distinct steps in the lake: kind, numbers of both records, missing end, and outcome."""
        rows = DeltaTable((lake or self.growing.lake).uri("edges")).to_pyarrow_table().to_pylist()
        return sorted((self._step(row) for row in rows if row["side"] != "to"), key=repr)

    def _step(self, row: dict[str, Any]) -> Step:
        numbers = {place: number for number, place in enumerate(self.places)}
        ends = (numbers.get(row[f"{end}_physical_offset"]) for end in ("from", "to"))
        return (row["kind"], *ends, row["absent_reason"], row["outcome"])
