"""Tests of light queues (`%LMQ%...`): entries are written on append and on recovery."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.light_queues import light_queue_entries
from tests.support.message_stores import SMALL, message, queue_entries
from tests.support.small_stores import Clock

NAMES = ("%LMQ%a", "%LMQ%b")


@pytest.fixture
def light_store(root: Path, clock: Clock) -> Iterator[MessageStore]:
    """A store with light queues enabled."""
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.files.queues.find_or_create_light(NAMES[0])
        yield store


def put(store: MessageStore, number: int, names: str, **more: str) -> dict[str, str]:
    """Store a message for some light queues, and return its stored properties."""
    pairs = (("UNIQ_KEY", f"U{number}"), ("TAGS", "t"), ("INNER_MULTI_DISPATCH", names), *more.items())
    result = store.put(message(number, properties=pairs))
    found = store.get_at(result.physical_offset)
    assert found is not None
    return found.properties


def fill(store: MessageStore) -> None:
    """Store 30 messages, each third of which is in both light queues."""
    for number in range(30):
        put(store, number, ",".join(NAMES) if number % 3 == 0 else NAMES[0])


def entries(root: Path) -> list[list[object]]:
    """Return the content of the files of all queues."""
    return [list(queue_entries(root, topic)) for topic in ("orders", *NAMES)]


def test_a_record_has_its_queue_offset_in_each_light_queue(root: Path, light_store: MessageStore) -> None:
    assert put(light_store, 0, "%LMQ%a")["INNER_MULTI_QUEUE_OFFSET"] == "0"
    assert put(light_store, 1, "%LMQ%a,%LMQ%b")["INNER_MULTI_QUEUE_OFFSET"] == "1,0"
    assert put(light_store, 2, "%LMQ%b,%LMQ%a", INNER_MULTI_QUEUE_OFFSET="7,8")["INNER_MULTI_QUEUE_OFFSET"] == "1,2"
    assert [one.body for one in light_store.get("%LMQ%a", 0, 0).messages] == [b"body 0", b"body 1", b"body 2"]
    assert [one.body for one in light_store.get("%LMQ%b", 0, 0).messages] == [b"body 1", b"body 2"]
    assert light_store.take_arrived() >= {("%LMQ%a", 0), ("%LMQ%b", 0), ("orders", 0)}
    orders, first, second = entries(root)
    assert first == orders
    assert second == orders[1:]


@pytest.mark.parametrize("names", ["%LMQ%a,other", "%LMQ%a/b", "%LMQ%" + "x" * 300, ","])
def test_messages_with_other_names_are_in_no_light_queue(light_store: MessageStore, names: str) -> None:
    assert "INNER_MULTI_QUEUE_OFFSET" not in put(light_store, 0, names, INNER_MULTI_QUEUE_OFFSET="5,6")
    assert light_store.max_offset("%LMQ%a", 0) == 0


def test_a_store_with_light_queues_disabled_creates_none(root: Path, store: MessageStore) -> None:
    assert "INNER_MULTI_QUEUE_OFFSET" not in put(store, 0, "%LMQ%a", INNER_MULTI_QUEUE_OFFSET="5")
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["orders"]


@pytest.mark.parametrize("lost", ["consumequeue", "index", "consumequeue/%LMQ%a", "consumequeue/orders"])
def test_recovery_rebuilds_light_queues(root: Path, light_store: MessageStore, lost: str) -> None:
    fill(light_store)
    light_store.close()
    expected = entries(root)
    assert [len(one) for one in expected] == [30, 30, 10]
    shutil.rmtree(root / lost)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    with MessageStore.open(root, SMALL) as store:
        assert put(store, 30, "%LMQ%a")["INNER_MULTI_QUEUE_OFFSET"] == "30"
        assert not any(topic.startswith("%LMQ%") for topic in store.config.topics.entries)
    assert [found[: len(one)] for found, one in zip(entries(root), expected, strict=True)] == expected


def test_light_queues_may_start_at_any_offset_after_segments_expired(root: Path, light_store: MessageStore) -> None:
    fill(light_store)
    light_store.close()
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 1
    segments[0].unlink()
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    with MessageStore.open(root, SMALL) as store:
        for name in NAMES:
            low, high = store.min_offset(name, 0), store.max_offset(name, 0)
            assert 0 < low < high
            assert [one.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")[NAMES.index(name)] for one in
                    store.get(name, 0, low, 100).messages] == [str(number) for number in range(low, high)]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "names", "offsets", "expected"),
    [
        ("orders", "%LMQ%a,%LMQ%b", "7,8", (("%LMQ%a", 7), ("%LMQ%b", 8))),
        ("orders", "%LMQ%a,%LMQ%b", "7", ()),
        ("orders", "%LMQ%a,other,%LMQ%c/d", "7,8,9", (("%LMQ%a", 7),)),
        ("orders", "%LMQ%a", "9" * 5000, ()),
        ("orders", "%LMQ%a", "-1", ()),
        ("%RETRY%g", "%LMQ%a", "7", ()),
        ("SCHEDULE_TOPIC_XXXX", "%LMQ%a", "7", ()),
        ("rmq_sys_wheel_timer", "%LMQ%a", "7", ()),
    ],
)
def test_light_queue_entries_follow_from_the_properties_of_a_record(
    topic: str, names: str, offsets: str, expected: tuple[tuple[str, int], ...]
) -> None:
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    assert light_queue_entries(topic, properties) == expected
