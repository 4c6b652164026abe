"""Lakes with the messages of business keys, and the journeys of these keys as they must be, from the plan of the lake.

The plan says what happened to each message. Records are made from it for real stores and archive runs, and journeys are
computed from it without looking at a record.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.times import from_ms
from tests.support.lakes import GrowingLake, archive_store
from tests.support.logs import START_MS
from tests.support.message_families import COMMIT_FLAG, offset_id, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROKERS = ("broker-a", "broker-b")
TOPICS = ("orders", "payments", "shipments")
DEAD_TOPIC, RETRY_TOPIC = "%DLQ%shop", "%RETRY%shop"
_LEVEL, _LEVEL_S = 3, 10
_TIMER_S = 60


@dataclass(frozen=True)
class Sent:
    """A message of a plan.

    Attributes:
        key: its business key, or several separated by a space.
        topic: topic that it is sent to.
        shape: what happens to it, one of `SHAPES`.
        at: seconds after the beginning at which it is sent.
        broker: name of the store.
    """

    key: str
    topic: str
    shape: str = "plain"
    at: int = 0
    broker: str = BROKERS[0]


@dataclass(frozen=True)
class Happening:
    """Something that happens to a message.

    Attributes:
        what: `sent`, `held`, `prepared`, `checked`, `delivered`, `committed`, `failed` (held for a retry), `retried`,
            `dead`, `sent again` (by the application), `redriven` (by a replay), `ended` (an op record), `recalled` (a
            mark), `given up`, `timed` (held by a timer), or `released` (by it).
        after: seconds after the message was sent.
    """

    what: str
    after: int = 0


_FAILS = (Happening("sent"), Happening("failed", 20), Happening("retried", 30), Happening("failed", 40))
_DEAD = (*_FAILS, Happening("retried", 50), Happening("dead", 70))
SHAPES: Mapping[str, Sequence[Happening]] = {
    "plain": (Happening("sent"),),
    "sent twice": (Happening("sent"), Happening("sent again", 2)),
    "delayed": (Happening("held"), Happening("delivered", _LEVEL_S)),
    "waiting": (Happening("held"),),
    "timed": (Happening("timed"), Happening("released", _TIMER_S)),
    "recalled": (Happening("timed"), Happening("recalled", 5)),
    "retrying": _FAILS,
    "retried": (*_FAILS, Happening("retried", 50)),
    "dead": _DEAD,
    "redriven": (*_DEAD, Happening("redriven", 90)),
    "sent again": (*_DEAD, Happening("sent again", 90)),
    "committed": (Happening("prepared"), Happening("committed", 1), Happening("ended", 3)),
    "rolled back": (Happening("prepared"), Happening("ended", 3)),
    "pending": (Happening("prepared"), Happening("checked", 6)),
    "given up": (Happening("prepared"), Happening("checked", 6), Happening("given up", 12)),
}
_FIRST = {"sent", "sent again", "held", "timed", "prepared"}
_WITHOUT_KEY = {"ended", "recalled", "given up"}


@dataclass
class _Stored:
    """A record that a plan leads to.

    Attributes:
        message: number of the message.
        sent: the message.
        what: what happens to it.
        at: seconds after the beginning.
        place: physical offset, when it is written.
    """

    message: int
    sent: Sent
    what: str
    at: int
    place: int = -1


def _stored(plan: Sequence[Sent]) -> list[_Stored]:
    """Return the records of a plan, in order of time."""
    found = [
        _Stored(number, sent, each.what, sent.at + each.after)
        for number, sent in enumerate(plan)
        for each in SHAPES[sent.shape]
    ]
    return sorted(found, key=attrgetter("at"))


@dataclass
class _Store(GrowingLake):
    """The store of one of the brokers.

    Attributes:
        name: name of the broker.
        places: physical offset of records, by message and what happened.
        halves: queue offsets of half messages, by message.
    """

    name: str = BROKERS[0]
    places: dict[tuple[int, str], int] = field(default_factory=dict)
    halves: dict[int, int] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.folder / self.name


@dataclass
class JourneyedLake:
    """A lake of a plan.

    Attributes:
        folder: folder of stores and lake.
        plan: the messages.
        runs: number of archive runs.
    """

    folder: Path
    plan: Sequence[Sent]
    runs: int = 1

    def __post_init__(self) -> None:
        self.stores = {name: _Store(self.folder, name=name) for name in BROKERS}
        self.records = _stored(self.plan)
        lake = self.stores[BROKERS[0]].lake
        self.root = lake.root
        size = -(-len(self.records) // self.runs) or 1
        for start in range(0, len(self.records), size):
            for each in self.records[start : start + size]:
                self._write(each)
            for store in self.stores.values():
                if store.count:
                    archive_store(store.store, lake)
            follow_edges(lake)

    def _write(self, each: _Stored) -> None:
        store = self.stores[each.sent.broker]
        place = len(store.log)
        each.place = place
        message = _MAKERS[each.what](each, store)
        if each.what in {"prepared", "checked"}:
            store.halves[each.message] = store.queue_length(HALF_TOPIC)
        store.places.setdefault((each.message, each.what), place)
        store.write([message])

    def journeys(self, since: int, until: int, margin: int) -> dict[str, dict[str, Any]]:
        """Return the journeys by key, for a window in seconds after the beginning."""
        return expected_journeys(self.records, since, until, margin)


def _make(each: _Stored, topic: str, unique_key: str | None = "", **more: Any) -> NewMessage:
    properties = {"KEYS": each.sent.key, **more.pop("properties", {})}
    key = f"U{each.message:04}" if unique_key == "" else unique_key
    return record(key, topic, each.at, properties=properties, **more)


def _own(each: _Stored, _: _Store) -> NewMessage:
    return _make(each, each.sent.topic)


def _held(
    each: _Stored, topic: str, store: _Store | None = None, *, attempt: int = 0, waits: bool = True
) -> NewMessage:
    properties: dict[str, Any] = {"DELAY": _LEVEL, "REAL_TOPIC": topic, "REAL_QID": 0}
    if store is not None:
        origin = offset_id(store.places[each.message, "sent"])
        properties |= {"RETRY_TOPIC": each.sent.topic, "ORIGIN_MESSAGE_ID": origin}
    stored, queue = (SCHEDULE_TOPIC, _LEVEL - 1) if waits else (topic, 0)
    return _make(each, stored, queue_id=queue, reconsume_times=attempt, properties=properties)


def _retry(each: _Stored, store: _Store, *, waits: bool) -> NewMessage:
    attempt = 1 if each.at - each.sent.at < 40 else 2
    return _held(each, RETRY_TOPIC, store, attempt=attempt, waits=waits)


def _timed(each: _Stored, topic: str) -> NewMessage:
    due = START_MS + (each.sent.at + _TIMER_S) * 1000
    return _make(each, topic, properties={"TIMER_OUT_MS": due, "REAL_TOPIC": each.sent.topic, "REAL_QID": 0})


def _recalled(each: _Stored, _: _Store) -> NewMessage:
    properties = {"TIMER_OUT_MS": START_MS, "REAL_TOPIC": each.sent.topic, "TIMER_DEL_UNIQKEY": f"U{each.message:04}"}
    return record(f"M{each.message}", TIMER_TOPIC, each.at, properties=properties)


def _half(each: _Stored, _: _Store) -> NewMessage:
    checks = 1 if each.what == "checked" else None
    properties = {"TRAN_MSG": "true", "REAL_TOPIC": each.sent.topic, "TRANSACTION_CHECK_TIMES": checks}
    return _make(each, HALF_TOPIC, properties=properties)


def _committed(each: _Stored, store: _Store) -> NewMessage:
    prepared = store.places[each.message, "prepared"]
    properties = {"TRAN_MSG": "true", "PGROUP": "shop"}
    return _make(
        each, each.sent.topic, sys_flag=COMMIT_FLAG, prepared_transaction_offset=prepared, properties=properties
    )


def _ended(each: _Stored, store: _Store) -> NewMessage:
    body = f"{store.halves[each.message]},".encode()
    return record(None, OP_TOPIC, each.at, body=body, properties={"TAGS": "d"})


def _dead(each: _Stored, store: _Store) -> NewMessage:
    origin = offset_id(store.places[each.message, "sent"])
    properties = {"RETRY_TOPIC": each.sent.topic, "ORIGIN_MESSAGE_ID": origin, "DELAY": 0}
    return _make(each, DEAD_TOPIC, reconsume_times=3, properties=properties)


def _redriven(each: _Stored, store: _Store) -> NewMessage:
    properties = {
        "REPLAY_ID": "R1",
        "ORIGIN_BROKER": each.sent.broker,
        "ORIGIN_PHYSICAL_OFFSET": store.places[each.message, "dead"],
        "ORIGIN_TOPIC": DEAD_TOPIC,
    }
    return _make(each, each.sent.topic, f"R{each.message:04}", properties=properties)


_MAKERS: Mapping[str, Callable[[_Stored, _Store], NewMessage]] = {
    "sent": _own,
    "sent again": _own,
    "held": lambda each, _: _held(each, each.sent.topic),
    "delivered": lambda each, _: _held(each, each.sent.topic, waits=False),
    "timed": lambda each, _: _timed(each, TIMER_TOPIC),
    "released": lambda each, _: _timed(each, each.sent.topic),
    "recalled": _recalled,
    "failed": lambda each, store: _retry(each, store, waits=True),
    "retried": lambda each, store: _retry(each, store, waits=False),
    "dead": _dead,
    "redriven": _redriven,
    "prepared": _half,
    "checked": _half,
    "committed": _committed,
    "ended": _ended,
    "given up": lambda each, _: record(f"U{each.message:04}", GIVEN_UP_TOPIC, each.at, properties={"TRAN_MSG": "true"}),
}


# --- the journeys of a plan ---


def time_of(seconds: float) -> datetime.datetime:
    """Return the time of a number of seconds after the beginning."""
    return from_ms(START_MS + round(seconds * 1000))


@dataclass
class _Message:
    """A message, as far as its records were read.

    Attributes:
        topic: topic that it was sent to.
        read: its records, in order of time.
        known: what happened to it by the end, also what was not read.
    """

    topic: str
    read: list[_Stored]
    known: list[_Stored]

    @property
    def order(self) -> tuple[int, str, int]:
        """Place in the order of messages: that of the first record that was read."""
        first = self.read[0]
        return first.at, first.sent.broker, first.place

    @property
    def has_first(self) -> bool:
        """True if the record with which it was sent was read."""
        return any(each.what in _FIRST for each in self.read)

    def count(self, *whats: str) -> int:
        """Return how many of its records that were read are of one of these kinds."""
        return sum(each.what in whats for each in self.read)


def expected_journeys(records: Iterable[_Stored], since: int, until: int, margin: int) -> dict[str, dict[str, Any]]:
    """Return the columns of journeys by key."""
    begin, end = since - margin, until + margin
    by_key: dict[str, dict[tuple[int, bool], list[_Stored]]] = defaultdict(lambda: defaultdict(list))
    for each in records:
        for key in set(each.sent.key.split()):
            if each.at < end:
                by_key[key][each.message, each.what == "redriven"].append(each)
    found = {}
    for key, of_messages in by_key.items():
        messages = []
        for (number, is_replay), known in of_messages.items():
            read = [each for each in known if begin <= each.at and each.what not in _WITHOUT_KEY]
            others = [] if is_replay else of_messages.get((number, True), [])
            if read:
                messages.append(_Message(known[0].sent.topic, read, [*known, *others]))
        times = [each.at for message in messages for each in message.read]
        if any(since <= at < until for at in times):
            found[key] = _journey(sorted(messages, key=attrgetter("order")), since, until, begin)
    return found


def _journey(messages: Sequence[_Message], since: int, until: int, begin: int) -> dict[str, Any]:
    steps: list[list[_Message]] = []
    lacks_first = False
    for message in messages:
        same = [step for step in steps if step[0].topic == message.topic]
        if message.has_first or not same:
            steps.append([message])
        else:
            same[-1].append(message)
        if not message.has_first:
            origins = [_origin_at(each, message.known) for each in message.read]
            lacks_first |= any(at is None or at < begin for at in origins)
    times = [each.at for message in messages for each in message.read]
    made = [_step(step) for step in steps]
    states = [step["state"] for step in made]
    for number, step in enumerate(made, 1):
        step["number"] = number
        before = made[number - 2]["sent_at"] if number > 1 else None
        step["hop_ms"] = before and (step["sent_at"] - before) // datetime.timedelta(milliseconds=1)
    waits = [due for message in messages if (due := _due(message)) is not None]
    return {
        "path": [step["topic"] for step in made],
        "steps": made,
        "last_topic": made[-1]["topic"],
        "messages": len(made),
        "records": len(times),
        "first_at": time_of(min(times)),
        "last_at": time_of(max(times)),
        "last_sent_at": made[-1]["sent_at"],
        "retries": sum(message.count("retried") for message in messages),
        "dead_letters": sum(message.count("dead") for message in messages),
        "open_transactions": sum(any(_is_prepared(message) for message in step) for step in steps),
        "waiting": sum(any(_due(message) is not None for message in step) for step in steps),
        "due_at": max(map(time_of, waits), default=None),
        "replays": sum(message.count("redriven") for message in messages),
        "outcome": next((state for state in ("dead", "prepared", "waiting") if state in states), states[-1]),
        "began_before": min(times) < since or lacks_first,
        "went_on_after": max(times) >= until,
        "is_cut": False,
        "order_uncertain": False,
    }


_BEFORE = {
    "delivered": ("held",),
    "released": ("timed",),
    "committed": ("prepared",),
    "checked": ("prepared",),
    "failed": ("retried", "sent"),
    "retried": ("failed",),
    "dead": ("retried", "sent"),
    "redriven": ("dead",),
}


def _origin_at(each: _Stored, known: Sequence[_Stored]) -> int | None:
    """Return when the record was stored that a copy was made of; None if there is none."""
    before = [other.at for other in known if other.what in _BEFORE.get(each.what, ()) and other.at < each.at]
    if each.what == "redriven":
        return each.sent.at + 70
    return max(before, default=None)


def _step(messages: Sequence[_Message]) -> dict[str, Any]:
    read = [each for message in messages for each in message.read]
    first = messages[0].read[0]
    visible = [each.at for each in read if each.what in _VISIBLE]
    return {
        "topic": messages[0].topic,
        "sent_at": time_of(first.at),
        "visible_at": time_of(min(visible)) if visible else None,
        "state": _state(messages),
        "retries": sum(message.count("retried") for message in messages),
        "dead_letters": sum(message.count("dead") for message in messages),
        "broker": first.sent.broker,
        "physical_offset": first.place,
    }


_VISIBLE = {"sent", "sent again", "delivered", "released", "committed", "redriven"}


def _state(messages: Sequence[_Message]) -> str:
    read = [each for message in messages for each in message.read]
    sent = max((each.at for each in read if each.what in _FIRST | {"redriven"}), default=-1)
    deaths = [each.at for each in read if each.what == "dead"]
    open_deaths = [
        each.at
        for message in messages
        for each in message.read
        if each.what == "dead" and not any(other.what == "redriven" for other in message.known)
    ]
    if open_deaths and max(open_deaths) >= sent:
        return "dead"
    if any(map(_is_prepared, messages)):
        return "prepared"
    if any(_due(message) is not None for message in messages):
        return "waiting"
    if deaths and max(deaths) >= sent:
        return "redriven"
    whats = {each.what for message in messages for each in message.known}
    if any(each.what in _VISIBLE | {"retried"} for each in read):
        return "delivered"
    return "rolled_back" if "ended" in whats else "cancelled" if whats & {"given up", "recalled"} else "unknown"


def _is_prepared(message: _Message) -> bool:
    known = {each.what for each in message.known}
    return message.count("prepared", "checked") > 0 and not known & {"committed", "ended", "given up"}


def _due(message: _Message) -> int | None:
    """Return when a message that is held back is due, seconds after the beginning; None if it is not."""
    last = max(message.known, key=attrgetter("at"))
    if last not in message.read:
        return None
    return {"held": last.at + _LEVEL_S, "failed": last.at + _LEVEL_S, "timed": last.at + _TIMER_S}.get(last.what)


PLANS = st.lists(
    st.builds(
        Sent,
        key=st.sampled_from(("o1", "o2", "o3", "o1 o2")),
        topic=st.sampled_from(TOPICS),
        shape=st.sampled_from(tuple(SHAPES)),
        at=st.integers(0, 300),
        broker=st.sampled_from(BROKERS),
    ),
    min_size=1,
    max_size=12,
)
"""Plans of a few keys, whose messages are of all shapes."""
WINDOWS = st.tuples(st.integers(-20, 320), st.integers(1, 300), st.sampled_from((0, 10, 60, 1000)))
"""Start, length and margin of windows, in seconds."""


def by_key(frame: pa.Table | DataFrame) -> dict[str, dict[str, Any]]:
    """Return journeys from either engine by key."""
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    rows = table.to_pylist()
    found = {row.pop("key"): row for row in rows}
    assert len(found) == len(rows)
    return found
