"""Random messages and selections, and a plain statement of which messages a selection means."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import EPOCH, LAST_TIME
from tests.support.lakes import DAY_MS, MIDNIGHT_MS
from tests.support.logs import new_message

TEXTS = (
    "plain",
    "it's",
    "back\\slash",
    "trailing\\",
    '"quoted"',
    "订单",
    "a\nb",
    "%",
    "-- no",
    "\\'; --",
    "${env:HOME}",
)
"""Texts that are valid as topics, tags and keys, but not as parts of SQL."""
TOPICS = (*TEXTS, "%DLQ%it's", "%RETRY%plain")
COUNT = 60
_FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
_STEP_MS = DAY_MS // 20


def random_messages(seed: int = 7) -> list[NewMessage]:
    """Return messages with odd texts, some without tags or keys, spread over three days."""
    chance = random.Random(seed)
    return [_message(number, chance) for number in range(COUNT)]


def _message(number: int, chance: random.Random) -> NewMessage:
    properties = {"UNIQ_KEY": f"{number:032X}"}
    if chance.random() < 0.8:
        properties["TAGS"] = chance.choice(TEXTS)
    if chance.random() < 0.8:
        properties["KEYS"] = " ".join(chance.sample([text for text in TEXTS if " " not in text], 2))
    born = MIDNIGHT_MS + number * _STEP_MS + number
    return new_message(
        number, chance.choice(TOPICS), properties=tuple(properties.items()), born_timestamp=born, queue_id=number % 5
    )


def stored_after_ms(message: NewMessage) -> int:
    """Return the time from a message's birth to its storage, which differs from message to message."""
    return message.queue_id * _STEP_MS


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.just([]) | st.lists(values, min_size=1, max_size=3)


_ODD_TEXTS = st.sampled_from(TEXTS) | st.text("a\\'\0\ud800é", max_size=5)
_NEAR = st.builds(
    lambda ms, us: EPOCH + datetime.timedelta(milliseconds=ms, microseconds=us),
    st.integers(0, COUNT).map(lambda number: MIDNIGHT_MS + number * _STEP_MS + number),
    st.sampled_from((-1000, -999, -1, 0, 1, 999)),
)
_TIMES = st.none() | _NEAR | st.sampled_from((_FIRST, LAST_TIME))
READER_CONDITIONS = {
    "brokers": _some(st.sampled_from(("broker-a", "broker-b"))),
    "topics": _some(st.sampled_from(TOPICS) | st.text("a\\'\0\ud800é", max_size=5)),
    "queue_ids": _some(st.sampled_from((0, 1, 4, 5, (1 << 31) - 1))),
    "keys": _some(_ODD_TEXTS),
    "start": _TIMES,
    "end": _TIMES,
}
"""Conditions that the reader of logs can check."""
CONDITIONS = {
    **READER_CONDITIONS,
    "kinds": _some(st.sampled_from(("normal", "retry", "dlq"))),
    "tags": _some(_ODD_TEXTS),
    "ids": _some(st.integers(0, COUNT).map(lambda number: f"{number:032X}") | _ODD_TEXTS),
    "groups": _some(_ODD_TEXTS),
    "is_by_birth": st.booleans(),
}


def selections(conditions: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Selection]:
    """Return selections by up to three of some conditions."""
    names = st.sets(st.sampled_from(sorted(conditions)), max_size=3)
    return names.flatmap(lambda chosen: st.builds(Selection, **{name: conditions[name] for name in chosen}))


def is_selected(row: Mapping[str, Any], wanted: Selection) -> bool:
    """Return whether a selection means a row of `messages`."""
    time = row["born_timestamp"] if wanted.is_by_birth else row["store_timestamp"]
    return (
        (not wanted.brokers or row["broker"] in wanted.brokers)
        and (not wanted.topics or row["topic"] in wanted.topics)
        and (not wanted.queue_ids or row["queue_id"] in wanted.queue_ids)
        and (not wanted.kinds or row["kind"] in wanted.kinds)
        and (not wanted.tags or row["tags"] in wanted.tags)
        and (not wanted.keys or any(key in wanted.keys for key in row["keys"] or ()))
        and (not wanted.ids or any(one in (row["msg_id"], row["unique_key"]) for one in wanted.ids))
        and (not wanted.groups or row["topic"] in {f"%DLQ%{group}" for group in wanted.groups})
        and (wanted.start is None or time >= wanted.start)
        and (wanted.end is None or time < wanted.end)
    )
