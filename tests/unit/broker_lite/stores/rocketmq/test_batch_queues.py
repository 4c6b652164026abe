"""Tests of topics with `queue.type=BatchCQ`, whose records have several messages: sends, pulls, recovery, deletion."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.delivery import Delivery, SendBackError
from commitlake.broker_lite.stores.engine.queue_reader import PullLimits
from commitlake.broker_lite.stores.rocketmq import GetStatus, MessageRefusedError, MessageStore, StoreFilesError
from commitlake.broker_lite.stores.rocketmq.store_files import CheckpointFile
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import ENTRY, BatchQueueEntry, parse_entry
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, NewMessage
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from tests.support.message_stores import SMALL, log_records, message
from tests.support.small_stores import STORED_MS, Clock, crash

OPTIONS = replace(SMALL, batch_queue_file_size_bytes=3 * ENTRY.size)
"""A queue's file rolls after three records."""
TOPIC = "batched"
ALL = PullLimits(100, 1 << 20)


def inner_batch(first: int, count: int, topic: str = TOPIC, **changes: Any) -> NewMessage:
    """Return a record of several messages as a send makes it."""
    body = serialize_batch(BatchItem(0, f"body {number}".encode(), b"") for number in range(first, first + count))
    values: dict[str, Any] = {
        "body": body,
        "sys_flag": INNER_BATCH | NEED_UNWRAP,
        "properties": (("UNIQ_KEY", f"U{first}"), ("INNER_NUM", str(count)), ("TAGS", f"tag{first % 2}")),
    }
    return message(0, topic, **(values | changes))


def filled(root: Path, end: Callable[[MessageStore], None] = MessageStore.close) -> Path:
    """Return a store with records of 3, 1, 4, 1 and 5 messages, and another topic's between them."""
    clock = Clock()
    store = MessageStore.open(root, OPTIONS, clock=clock)
    store.config.topics.create_batch_topic(TOPIC, 1)
    for first, count in ((0, 3), (3, 1), (4, 4), (8, 1), (9, 5)):
        store.put(inner_batch(first, count) if count > 1 else message(first, TOPIC))
        store.put(message(first))
        clock.now_ms += 1000
    store.config.save()
    end(store)
    return root


def entries(root: Path) -> list[BatchQueueEntry]:
    """Return the used entries of the queue's files."""
    data = b"".join(path.read_bytes() for path in sorted((root / "batchconsumequeue" / TOPIC / "0").iterdir()))
    found = [parse_entry(data, position) for position in range(0, len(data), ENTRY.size)]
    return [entry for entry in found if entry.is_valid]


def numbers(root: Path) -> list[tuple[int, int, int]]:
    """Return store time since the start, first queue offset and message count of the entries."""
    return [(one.store_timestamp - STORED_MS, one.message_base_offset, one.batch_size) for one in entries(root)]


NUMBERS = [(0, 0, 3), (1000, 3, 1), (2000, 4, 4), (3000, 8, 1), (4000, 9, 5)]


def test_a_record_takes_one_queue_offset_per_message(root: Path) -> None:
    assert numbers(filled(root)) == NUMBERS
    with MessageStore.open(root, OPTIONS) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 14)
        found = store.get(TOPIC, 0, 5, 100)
        assert [one.queue_offset for one in found.messages] == [4, 8, 9]
        assert found.messages[0].properties["INNER_BASE"] == "4"
        assert [store.offset_by_time(TOPIC, 0, STORED_MS + ms) for ms in (0, 1, 2000, 3001, 9000)] == [0, 3, 4, 9, 14]
        entry = store.entry_at(TOPIC, 0, 7)
        assert entry is not None
        assert entry.physical_offset == found.messages[0].physical_offset
        assert store.put(inner_batch(14, 2)).queue_offset == 14
        assert store.max_offset(TOPIC, 0) == 16
    assert not (root / "consumequeue" / TOPIC).exists()


@pytest.mark.parametrize(
    ("offset", "limits", "first", "following"),
    [
        (0, ALL, [0, 3, 4, 8, 9], 14),
        (6, ALL, [4, 8, 9], 14),  # within a record: clients drop messages that they have
        (0, PullLimits(4, 1 << 20), [0, 3], 4),
        (0, PullLimits(1, 1 << 20), [0], 3),  # at least one record is returned, as by RocketMQ
        (0, PullLimits(100, 1), [0], 3),
        (13, ALL, [9], 14),
    ],
)
def test_a_pull_returns_whole_records(
    root: Path, offset: int, limits: PullLimits, first: list[int], following: int
) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        found = store.pull(TOPIC, 0, offset, limits)
        expected = [store.get(TOPIC, 0, number, 1).messages[0] for number in first]
        assert found.records == [store.record_for_client(one) for one in expected]
        assert (found.status, found.next_offset, found.max_offset) == (GetStatus.FOUND, following, 14)


def test_a_filter_uses_the_tag_of_the_record(root: Path) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        codes = {store.options.dialect.tags_code("tag0")}
        found = store.pull(TOPIC, 0, 0, ALL, codes)
        assert found.next_offset == 14
        assert len(found.records) == 3  # those at 0, 3 (tag0, as 3 % 3 is 0) and 4


def _without(name: str) -> Callable[[Path], None]:
    return lambda root: shutil.rmtree(root / name, ignore_errors=True)


def _crashed(root: Path) -> None:
    (root / "abort").touch()
    checkpoint = CheckpointFile(root)
    checkpoint.update(physic_msg_timestamp=1, logics_msg_timestamp=1)
    checkpoint.save()


def _without_topic(root: Path) -> None:
    for path in (root / "config").glob("topics.json*"):
        path.unlink()


STATES: dict[str, tuple[Callable[[Path], None], ...]] = {
    "clean": (),
    "no index": (_without("index"),),
    "crashed, early checkpoint": (_crashed,),
    "no queues": (_without("batchconsumequeue"),),
    "no queues, crashed": (_without("batchconsumequeue"), _without("consumequeue"), _crashed),
    "no topics.json": (_without_topic, _without("index")),
    "log alone": (_without_topic, _without("index"), _without("batchconsumequeue"), _without("consumequeue")),
}


@pytest.mark.parametrize("state", STATES)
def test_recovery_rebuilds_the_same_batch_queues(root: Path, state: str) -> None:
    filled(root)
    for change in STATES[state]:
        change(root)
    with MessageStore.open(root, OPTIONS) as store:
        if state == "no queues":  # noticed when a later message is read, as a missing ConsumeQueue
            store.put(inner_batch(14, 1))
            return
        assert store.put(message(14, TOPIC)).queue_offset == 14
    assert numbers(root)[:-1] == NUMBERS
    assert not (root / "consumequeue" / TOPIC).exists()
    topics = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics[TOPIC]["attributes"] == {"queue.type": "BatchCQ"}


def test_single_messages_before_the_first_batch_keep_a_topic_a_batch_topic(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        store.config.topics.create_batch_topic(TOPIC, 1)
        store.put(message(0, TOPIC))
        store.put(inner_batch(1, 2))
        store.put(message(3, TOPIC))
    for change in STATES["log alone"]:
        change(root)
    MessageStore.open(root, OPTIONS).close()
    assert numbers(root) == [(0, 0, 1), (0, 1, 2), (0, 3, 1)]
    assert not (root / "consumequeue" / TOPIC).exists()


def _flag_as_batch(root: Path) -> None:
    """Turn the record that has the property INNER_NUX into one with the flag and properties of an inner batch."""
    segment = root / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    offset, message = next((one.physical_offset, one) for one in log_records(root) if "INNER_NUX" in one.properties)
    flags = offset + HEAD.offset_of("sys_flag")
    data[flags : flags + 4] = (message.sys_flag | INNER_BATCH).to_bytes(4, "big")
    segment.write_bytes(data.replace(b"INNER_NUX", b"INNER_NUM"))


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("state", ["no topics.json", "log alone"])
def test_a_single_forged_batch_record_does_not_make_a_batch_topic(root: Path, place: int, state: str) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        for number in range(4):
            one = message(number, TOPIC)
            forged = replace(one, properties=(("INNER_BASE", str(number)), ("INNER_NUX", "3")))
            store.put(forged if number == place else one)
    _flag_as_batch(root)
    for change in STATES[state]:
        change(root)
    with MessageStore.open(root, OPTIONS) as store:
        assert store.max_offset(TOPIC, 0) == 4
        assert [one.queue_offset for one in store.get(TOPIC, 0, 0, 10).messages] == [0, 1, 2, 3]
    assert not (root / "batchconsumequeue").exists()
    MessageStore.open(root, OPTIONS).close()  # and again, with the files of the first opening


def test_a_folder_of_simple_queues_overrides_flags_in_records(root: Path) -> None:
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        store.put(message(0, TOPIC, properties=(("INNER_BASE", "0"), ("INNER_NUX", "3"))))
    _flag_as_batch(root)  # all records of the topic have the flag now
    for change in (_without_topic, _without("index")):
        change(root)
    with MessageStore.open(root, OPTIONS) as store:
        assert store.max_offset(TOPIC, 0) == 1
    assert not (root / "batchconsumequeue").exists()


def test_a_lost_tail_is_dropped_from_the_queue(root: Path) -> None:
    filled(root, crash)
    with MessageStore.open(root, OPTIONS) as store:
        last = store.get(TOPIC, 0, 9, 1).messages[0].physical_offset
    segment, position = divmod(last, OPTIONS.segment_size_bytes)
    with (root / "commitlog" / f"{segment * OPTIONS.segment_size_bytes:020d}").open("r+b") as file:
        file.seek(position)
        file.write(bytes(100))
    with MessageStore.open(root, OPTIONS) as store:
        assert store.max_offset(TOPIC, 0) == 9
    assert numbers(root) == NUMBERS[:-1]


def test_a_topic_with_queues_of_the_wrong_kind_is_refused_by_name(root: Path) -> None:
    filled(root)
    shutil.copytree(root / "consumequeue" / "orders", root / "consumequeue" / TOPIC)
    with pytest.raises(StoreFilesError, match=r"consumequeue/batched: the topic has queues in this folder.*BatchCQ"):
        MessageStore.open(root, OPTIONS)
    shutil.rmtree(root / "consumequeue" / TOPIC)
    (root / "consumequeue" / TOPIC / "0").mkdir(
        parents=True
    )  # empty: RocketMQ refuses to start with it, and broker_lite removes it
    MessageStore.open(root, OPTIONS).close()
    assert not (root / "consumequeue" / TOPIC).exists()
    topics = json.loads((root / "config" / "topics.json").read_text())
    topics["topicConfigTable"][TOPIC]["attributes"] = {}
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    with pytest.raises(
        StoreFilesError, match=r"batchconsumequeue/batched: the topic has queues in this folder.*SimpleCQ"
    ):
        MessageStore.open(root, OPTIONS)


def test_a_deleted_topic_can_be_recreated_with_queues_of_the_other_kind(root: Path) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        store.config.topics.remove_entry(TOPIC)
        store.delete_queues(TOPIC)
        store.put(message(0, TOPIC))
    assert not (root / "batchconsumequeue" / TOPIC).exists()
    MessageStore.open(root, OPTIONS).close()


def test_queue_files_of_expired_segments_are_deleted(root: Path) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        third = store.get(TOPIC, 0, 4, 1).messages[0]
        queues = store._files.queues
        queues.delete_expired(third.physical_offset + 1)
        assert sorted(path.name for path in (root / "batchconsumequeue" / TOPIC / "0").iterdir()) == [
            f"{3 * ENTRY.size:020d}"
        ]
        queue = queues.find(TOPIC, 0)
        assert queue is not None
        assert (queue.min_offset(third.physical_offset + 1), queue.max_offset) == (8, 14)
    with MessageStore.open(root, OPTIONS) as store:
        assert store.put(inner_batch(14, 2)).queue_offset == 14


@pytest.mark.parametrize(
    "wrong",
    [
        inner_batch(0, 2, topic="orders"),  # not a topic of batches
        inner_batch(0, 2, properties=(("INNER_NUM", "9" * 5000),)),
        inner_batch(0, 2, properties=(("INNER_NUM", "32768"),)),
        inner_batch(0, 2, properties=()),
        message(0, TOPIC, properties=(("INNER_NUM", "2"),)),
    ],
)
def test_an_invalid_inner_batch_is_refused(root: Path, wrong: NewMessage) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        end = store.max_physical_offset
        with pytest.raises(MessageRefusedError, match="INNER_NUM"):
            store.put(wrong)
        assert store.max_physical_offset == end


def test_a_batch_cannot_be_sent_back(root: Path) -> None:
    with MessageStore.open(filled(root), OPTIONS) as store:
        batch, single = (store.get(TOPIC, 0, number, 1).messages[0].physical_offset for number in (0, 3))
        delivery = Delivery(store)
        with pytest.raises(SendBackError, match="inner batch"):
            delivery.send_back("group", batch)
        assert delivery.send_back("group", single) is not None
