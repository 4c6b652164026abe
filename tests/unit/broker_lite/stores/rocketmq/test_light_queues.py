"""Tests of light queues (`%LMQ%...`): entries are written on append and on recovery."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.light_queues import light_queue_offsets
from tests.support.message_stores import SMALL, message, queue_entries
from tests.support.small_stores import Clock

NAMES = ("%LMQ%a", "%LMQ%b")
HOST = Host.of("127.0.0.1", 50123)


@pytest.fixture
def light_store(root: Path, clock: Clock) -> Iterator[MessageStore]:
    """A store with light queues enabled."""
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.files.queues.find_or_create_light_queue(NAMES[0])
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
    assert light_store.take_queues_with_new_messages() >= {("%LMQ%a", 0), ("%LMQ%b", 0), ("orders", 0)}
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


def forge(store: MessageStore, number: int, names: str, offsets: str) -> None:
    """Append a record with offsets in light queues that a client has made up, as a RocketMQ broker stores a batch's."""
    pairs = (("UNIQ_KEY", f"U{number}"), ("INNER_MULTI_DISPATCH", names), ("INNER_MULTI_QUEUE_OFFSET", offsets))
    store.writer.append([store.preparer.prepare(message(number, properties=pairs))])


def folders(root: Path) -> list[str]:
    """Return the names of the topics that have queues."""
    return sorted(path.name for path in (root / "consumequeue").iterdir())


def crash(root: Path) -> None:
    """Make the next opening read the log from its start."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()


def test_a_record_that_names_a_light_queue_twice_is_entered_once(root: Path, light_store: MessageStore) -> None:
    assert put(light_store, 0, "%LMQ%a,%LMQ%a")["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert put(light_store, 1, "%LMQ%a,%LMQ%b,%LMQ%a")["INNER_MULTI_QUEUE_OFFSET"] == "1,0,1"
    assert put(light_store, 2, "%LMQ%a")["INNER_MULTI_QUEUE_OFFSET"] == "2"
    assert (light_store.max_offset("%LMQ%a", 0), light_store.max_offset("%LMQ%b", 0)) == (3, 1)
    light_store.close()
    expected = entries(root)
    shutil.rmtree(root / "consumequeue" / "%LMQ%a")
    crash(root)
    with MessageStore.open(root, SMALL) as store:
        assert store.max_offset("%LMQ%a", 0) == 3
    assert entries(root) == expected


@pytest.mark.parametrize("has_light_queues", [True, False])
def test_offsets_that_a_producer_sends_are_not_stored(root: Path, clock: Clock, *, has_light_queues: bool) -> None:
    pairs = (
        ("UNIQ_KEY", "U"),
        ("INNER_MULTI_DISPATCH", "%LMQ%x"),
        ("INNER_MULTI_QUEUE_OFFSET", "5"),
        ("INNER_BASE", "7"),
    )
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    item = SentMessage("orders", 0, b"x", 1, HOST, 0, 0, 0, dict(pairs), text.encode())
    alone = item._replace(
        properties={"INNER_MULTI_QUEUE_OFFSET": "5"}, stored_properties=b"INNER_MULTI_QUEUE_OFFSET\x015\x02"
    )
    with MessageStore.open(root, SMALL, clock=clock) as store:
        if has_light_queues:
            store.files.queues.find_or_create_light_queue(NAMES[0])
        store.send_batch([item, item])
        store.send(alone)
        store.put_batch([message(0, properties=pairs), message(1, properties=pairs)])
        found = [one.properties for one in store.get("orders", 0, 0).messages]
        assert len(found) == 5
        assert not any({"INNER_MULTI_QUEUE_OFFSET", "INNER_BASE"} & one.keys() for one in found)
        assert [one.get("INNER_MULTI_DISPATCH") for one in found] == ["%LMQ%x", "%LMQ%x", None, "%LMQ%x", "%LMQ%x"]
    crash(root)
    with MessageStore.open(root, SMALL):
        assert folders(root) == ["orders"]


def test_recovery_creates_no_light_queue_in_a_store_without_light_queues(root: Path, store: MessageStore) -> None:
    put(store, 0, "%LMQ%a")
    forge(store, 1, "%LMQ%x,%LMQ%y", "0,0")
    store.close()
    crash(root)
    with MessageStore.open(root, SMALL):
        assert folders(root) == ["orders"]


@pytest.mark.parametrize("evidence", ["offsets of a broker with light queues", "no queue at all", "a copy of a master"])
def test_recovery_creates_light_queues_where_they_may_be_enabled(
    root: Path, store: MessageStore, evidence: str
) -> None:
    forge(store, 1, "%LMQ%x,%LMQ%y", "0,0")
    store.close()
    shutil.rmtree(root / "index")  # so the log is read from its start
    if evidence.startswith("offsets"):
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "lmqConsumerOffset.json").write_text('{"offsetTable":{}}')
    elif evidence.startswith("no"):
        shutil.rmtree(root / "consumequeue")
    with MessageStore.open(root, SMALL, is_copy=evidence.startswith("a copy")):
        assert folders(root) == ["%LMQ%x", "%LMQ%y", "orders"]


def test_recovery_creates_a_limited_number_of_light_queues(
    root: Path, light_store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(light_store, 0, "%LMQ%a")
    for number in range(3):
        forge(light_store, 1 + number, f"%LMQ%x{number},%LMQ%y{number}", "0,0")
    light_store.close()
    for module in ("queues", "message_writer"):
        monkeypatch.setattr(f"commitlake.broker_lite.stores.rocketmq.{module}.MAX_LIGHT_QUEUES", 4)
    crash(root)
    with MessageStore.open(root, SMALL) as store:
        assert folders(root) == ["%LMQ%a", "%LMQ%x0", "%LMQ%x1", "%LMQ%y0", "orders"]
        assert [record.getMessage() for record in caplog.records if "light" in record.getMessage()] == [
            "records name more than 4 light queues; the others are not created"
        ]
        with pytest.raises(MessageRefusedError, match="the store has 4 already, which is the limit"):
            put(store, 9, "%LMQ%a,%LMQ%new")
        assert put(store, 10, "%LMQ%a,%LMQ%x1")["INNER_MULTI_QUEUE_OFFSET"] == "1,1"


@pytest.mark.parametrize(
    ("names", "padding", "refusal"),
    [
        (["%LMQ%new"] * 65, 0, "at most 64 light queues of a message, found 65"),
        ([f"%LMQ%{number}" for number in range(65)], 0, "at most 64 light queues of a message, found 65"),
        ([f"%LMQ%{number}" for number in range(64)], 3_400, "at most 4088 bytes"),  # fits without the offsets
    ],
)
def test_a_refused_message_creates_no_light_queue(
    root: Path, light_store: MessageStore, names: list[str], padding: int, refusal: str
) -> None:
    pairs = (("P", "x" * padding), ("INNER_MULTI_DISPATCH", ",".join(names)))
    before = {queue.topic for queue in light_store.files.queues}
    with pytest.raises(MessageRefusedError, match=refusal):
        light_store.put(message(0, properties=[pair for pair in pairs if pair[1]]))
    assert {queue.topic for queue in light_store.files.queues} == before == {"%LMQ%a"}
    assert put(light_store, 1, ",".join(f"%LMQ%{number}" for number in range(64)))["INNER_MULTI_QUEUE_OFFSET"] == (
        ",".join(["0"] * 64)
    )
    topics = {queue.topic for queue in light_store.files.queues}
    assert topics == {"orders", "%LMQ%a", *(f"%LMQ%{number}" for number in range(64))}


@pytest.mark.parametrize(
    ("topic", "names", "offsets", "expected"),
    [
        ("orders", "%LMQ%a,%LMQ%a,%LMQ%b", "7,7,8", (("%LMQ%a", 7), ("%LMQ%b", 8))),
        ("orders", "%LMQ%a,%LMQ%a", "7,9", (("%LMQ%a", 7),)),
        ("orders", "%LMQ%a,,", "7", (("%LMQ%a", 7),)),
        ("orders", "other,%LMQ%a", ",7", (("%LMQ%a", 7),)),
        ("orders", "%LMQ%a,other", "7,", ()),
        ("orders", ",", "", ()),
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
    assert light_queue_offsets(topic, properties) == expected
