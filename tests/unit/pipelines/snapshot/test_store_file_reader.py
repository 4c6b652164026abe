"""Snapshots from the files of a store whose broker may be writing them."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.store_file_reader import MAX_TRIES, read_store_snapshot
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue, serialize_offsets
from commitlake.schemas.layouts.jmq.offset_json import ConsumerPosition as JmqPosition
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint, serialize_timer_checkpoint
from tests.support.logs import write_store

NOW = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)
WRITTEN = NOW - datetime.timedelta(seconds=3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store without messages."""
    write_store(tmp_path / "broker-a", [(0, bytes(4096))])
    return tmp_path / "broker-a"


def put(root: Path, name: str, content: str | bytes, written: datetime.datetime = WRITTEN) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (written.timestamp(), written.timestamp()))


def store_of(root: Path) -> Store:
    (store,) = find_stores(str(root), formats=all_formats())
    return store


def read(root: Path) -> StoreSnapshot:
    progress = read_store_snapshot(store_of(root), NOW, wait=lambda _: None)
    assert progress is not None
    return progress


def group(group: str, topic: str, queue_id: int) -> OffsetOwner:
    return OffsetOwner(OffsetKind.GROUP, group, topic, queue_id)


def test_offsets_have_the_time_at_which_the_file_was_written(root: Path) -> None:
    put(root, "config/consumerOffset.json", '{"offsetTable":{"orders@billing":{0:388,1:4},"%RETRY%b@x@y":{0:1}}}')
    progress = read(root)
    assert progress.source == SnapshotSource.FILE
    assert progress.taken == {OffsetKind.GROUP: WRITTEN}
    assert progress.offsets == {
        group("billing", "orders", 0): 388, group("billing", "orders", 1): 4, group("x@y", "%RETRY%b", 0): 1,
    }  # fmt: skip


def test_an_offset_in_a_queue_that_cannot_exist_leaves_the_others(root: Path) -> None:
    put(root, "config/consumerOffset.json", '{"offsetTable":{"orders@g":{-1:7,0:-5},"orders@h":{0:1}}}')
    assert read(root).offsets == {group("g", "orders", -1): 7, group("g", "orders", 0): -5, group("h", "orders", 0): 1}


def test_a_file_from_the_future_has_the_current_time(root: Path) -> None:
    put(root, "config/consumerOffset.json", '{"offsetTable":{}}', NOW + datetime.timedelta(days=1))
    assert read(root).taken == {OffsetKind.GROUP: NOW}


def test_delay_levels_and_timers_are_read(root: Path) -> None:
    put(root, "config/delayOffset.json", '{"offsetTable":{1:7,3:9}}')
    put(root, "config/timercheck", serialize_timer_checkpoint(TimerCheckpoint(1_000_000, 52, 41)))
    progress = read(root)
    assert progress.offsets == {
        OffsetOwner(OffsetKind.DELAY, "", "SCHEDULE_TOPIC_XXXX", 0): 7,
        OffsetOwner(OffsetKind.DELAY, "", "SCHEDULE_TOPIC_XXXX", 2): 9,
        OffsetOwner(OffsetKind.TIMER, "", "rmq_sys_wheel_timer", 0): 41,
        OffsetOwner(OffsetKind.TIMER_TIME, "", "rmq_sys_wheel_timer", 0): 1_000_000,
    }
    assert OffsetKind.GROUP not in progress.taken


def test_boltmqs_order_of_group_and_topic_is_read(root: Path) -> None:
    put(root, "config/consumerOffset.json", '{"offsets":{"billing@%RETRY%billing":{"0":2},"billing@orders":{"0":5}}}')
    assert read(root).offsets == {group("billing", "%RETRY%billing", 0): 2, group("billing", "orders", 0): 5}


def test_offsets_of_jmq_are_read(tmp_path: Path) -> None:
    root = tmp_path / "jmq"
    (root / "journal").mkdir(parents=True)
    (root / "journal" / f"{0:020}").write_bytes(bytes(4096))
    put(root, "offset/offset.json", serialize_offsets({ConsumedQueue("orders", "app", 1): JmqPosition(5, 9, 1)}, 1))
    assert read(root).offsets == {group("app", "orders", 1): 5}


def test_filters_are_subscriptions_also_of_groups_without_clients(root: Path) -> None:
    data = {"expression": "price > 10", "expressionType": "SQL92", "bornTime": 50, "deadTime": 0, "clientVersion": 49}
    dead = data | {"deadTime": 60}
    filters = {"orders": {"topic": "orders", "groupFilterData": {"billing": data, "offline": dead}}}
    put(root, "config/consumerFilter.json", json.dumps({"filterDataByTopic": filters}))
    progress = read(root)
    assert progress.subscribed_as_of == WRITTEN
    assert set(progress.subscriptions) == {GroupTopic("billing", "orders"), GroupTopic("offline", "orders")}
    wanted = progress.subscriptions[GroupTopic("billing", "orders")]
    assert (wanted.expression_type, wanted.expression, wanted.subscribed_at) == ("SQL92", "price > 10", 49)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"offsetTable":{"orders@bil',  # cut in the middle of a write
        None,  # removed, and the new one not renamed yet
    ],
)
def test_a_file_in_the_middle_of_a_write_is_read_again(root: Path, torn: bytes | None) -> None:
    whole = '{"offsetTable":{"orders@billing":{0:388}}}'
    put(root, "config/consumerOffset.json.bak", whole)
    if torn is not None:
        put(root, "config/consumerOffset.json", torn)
    waits = []

    def finish_the_write(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            put(root, "config/consumerOffset.json", whole)

    progress = read_store_snapshot(store_of(root), NOW, finish_the_write)
    assert progress is not None
    assert progress.offsets == {group("billing", "orders", 0): 388}
    assert len(waits) == 3


def test_an_unreadable_file_is_reported_and_removes_no_offset(root: Path) -> None:
    put(root, "config/consumerOffset.json", '{"offsetTable":{"orders@bil')
    waits: list[float] = []
    progress = read_store_snapshot(store_of(root), NOW, waits.append)
    assert progress is not None
    assert len(waits) == MAX_TRIES - 1
    assert OffsetKind.GROUP not in progress.taken
    (sentence,) = progress.unreadable
    assert "consumerOffset.json: expected JSON with offsetTable, found" in sentence


def test_a_store_without_offsets_has_a_note(root: Path) -> None:
    progress = read(root)
    assert not progress.taken
    assert progress.note.endswith("consumerOffset.json: no such file, so no offsets of groups are known")


FILTERS = (
    '{"filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"billing":{"consumerGroup":"billing",'
    '"topic":"orders","expression":"price > 100","expressionType":"SQL92","bornTime":1700000000000}}}}}'
)
DAMAGED = {
    "missing": None,
    "empty": b"",
    "NULs": bytes(200),
    "shorter text over a longer one": b'{"offsetTable":{"orders@billing":{0:1}}}ling":{0:388}}}',
    "cut": b'{"offsetTable":{"orders@bil',
    "another table": b'{"offsetTable":{"orders@billing":7}}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_backup_is_used_as_by_a_broker(content: bytes | None, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(root, "config/consumerOffset.json.bak", '{"offsetTable":{"orders@billing":{0:388}}}')
    put(root, "config/delayOffset.json.bak", '{"offsetTable":{3:5}}')
    put(root, "config/consumerFilter.json.bak", FILTERS)
    if content is not None:
        for name in ("consumerOffset.json", "delayOffset.json", "consumerFilter.json"):
            (root / "config" / name).write_bytes(content)
    progress = read(root)
    assert progress.unreadable == ()
    assert [(owner.topic, owner.group, offset) for owner, offset in progress.offsets.items()] == [
        ("orders", "billing", 388), ("SCHEDULE_TOPIC_XXXX", "", 5)
    ]  # fmt: skip
    assert {kind for kind, _ in progress.taken.items()} == {OffsetKind.GROUP, OffsetKind.DELAY}
    assert [(key.group, one.expression) for key, one in progress.subscriptions.items()] == [("billing", "price > 100")]
    assert "config/consumerOffset.json: expected JSON with offsetTable, found " in caplog.text
    assert caplog.text.count("its .bak is used, as by a broker") == 3


def test_file_without_a_usable_backup_is_reported(root: Path) -> None:
    put(root, "config/consumerOffset.json.bak", "{")
    progress = read(root)
    assert not progress.taken
    (sentence,) = progress.unreadable
    assert sentence.endswith("config/consumerOffset.json: expected JSON with offsetTable, found no such file")
