"""The store of broker_lite and real brokers: each opens the other's store, and finds every message in every way."""

from __future__ import annotations

import hashlib
import shutil
import time
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.delivery.message_rewrites import to_new_message
from commitlake.broker_lite.shop_traffic import SHOP_OPTIONS, ShopTraffic, fill_shop_store
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from tests.servers.java_programs import Row, consume_all, dump_store, look_up
from tests.servers.process import free_ports
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import BrokerOptions, RocketMQ, StartBroker

DAY_MS = 86_400_000
BROKER_OPTIONS = BrokerOptions(
    segment_size_bytes=64 << 10,
    consume_queue_file_size_bytes=SHOP_OPTIONS.consume_queue_file_size_bytes,
    max_hash_slot_num=SHOP_OPTIONS.index_slots,
    max_index_num=SHOP_OPTIONS.index_entries,
    max_message_size_bytes=32 << 10,
    # After a crash a broker completes its index only with this setting.
    extra={"messageIndexSafe": True},
)


# --- a store of ours in a real broker ---


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShopTraffic:
    """A shop's store that has just been written, so that nothing in it has expired."""
    # Clients find a UNIQ_KEY by the time in it, which is counted from the month's beginning in local time.
    monkeypatch.setenv("TZ", "UTC")
    options = replace(
        SHOP_OPTIONS,
        segment_size_bytes=64 << 10,
        max_message_size_bytes=32 << 10,
        store_host=Host.of("127.0.0.1", free_ports(4) + 2),
    )
    start_ms = int(time.time() * 1000) - 3 * DAY_MS
    return fill_shop_store(tmp_path / "shop", orders=150, start_ms=start_ms, options=options)


def stored(shop: ShopTraffic) -> list[Message]:
    """Return every message as read by the store itself; the store is closed again."""
    with MessageStore.open(shop.path, shop.options) as store:
        return [
            message
            for topic, queue_id in store.queues
            for message in store.get(topic, queue_id, 0, shop.record_count).messages
        ]


def as_consumed(message: Message) -> Row:
    """Return a message as a consumer receives it."""
    body = zlib.decompress(message.body) if message.body_codec is BodyCodec.ZLIB else message.body
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "unique_key": message.unique_key,
        "keys": message.keys,
        "tags": message.tags,
        "properties": message.properties,
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
    }


@pytest.mark.each_version
def test_rocketmq_decodes_every_record(shop: ShopTraffic, rocketmq_version: str) -> None:
    decoded = {row["physical_offset"]: row for row in dump_store(rocketmq_version, shop.path)}
    assert len({row["segment"] for row in decoded.values()}) > 4
    messages = stored(shop)
    assert len(messages) == len(decoded) == shop.record_count
    for message in messages:
        row = decoded[message.physical_offset]
        for field in ("size", "queue_id", "queue_offset", "sys_flag", "body_crc", "msg_id", "topic", "keys", "tags"):
            assert row[field] == getattr(message, field), field
        for field in ("flag", "born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"):
            assert row[field] == getattr(message, field), field
        assert row["properties"] == message.properties
        assert (row["born_host"], row["store_host"]) == (str(message.born_host), str(message.store_host))


@pytest.mark.long("a real broker goes on with a store of ours, and its code decodes each record, each time")
@pytest.mark.parametrize(
    "crashed",
    [
        pytest.param(False, id="closed", marks=pytest.mark.long("after a crash, it reads more")),
        pytest.param(True, id="crashed"),
    ],
)
def test_rocketmq_serves_every_message_by_queue_by_key_and_by_id(
    shop: ShopTraffic, rocketmq_version: str, start_broker: StartBroker, crashed: bool
) -> None:
    messages = stored(shop)
    if crashed:
        (shop.path / "abort").write_text("1")
    servers = start_broker(rocketmq_version, shop.path, BROKER_OPTIONS, shop.options.store_host.port)
    check_queues(servers, shop, messages)
    check_look_ups(servers, messages)
    servers.stop_broker()
    check_config(shop, rocketmq_version)


def check_config(shop: ShopTraffic, version: str) -> None:
    """Check that the broker has read topics, groups and offsets, and has written them again."""
    with MessageStore.open(shop.path, shop.options) as store:
        topics = store.config.topics.entries
        assert {topic: topics[topic]["writeQueueNums"] for topic in ("orders", "shipments")} == {
            "orders": 4,
            "shipments": 2,
        }
        if version.startswith("5"):  # 4.9 writes this file only when a topic is created
            assert "BenchmarkTest" in topics
        assert store.config.groups.find_or_create("shipping-service") == (1, 3)
        shipped = [store.config.consumer_offsets.get("shipments", "shipping-service", number) for number in range(2)]
        assert shipped == [store.max_offset("shipments", number) for number in range(2)]
        assert store.config.delay_offsets.get(3) == store.max_offset("SCHEDULE_TOPIC_XXXX", 2) > 0


def check_queues(servers: RocketMQ, shop: ShopTraffic, messages: list[Message]) -> None:
    """Check that a consumer gets every message, as it was put. The broker's own additions come after them."""
    end = max(message.physical_offset for message in messages)
    consumed = [row for row in consume_all(servers, *shop.by_topic) if row["physical_offset"] <= end]
    expected = {message.physical_offset: as_consumed(message) for message in messages}
    assert len(consumed) == len(expected) == shop.record_count
    for row in consumed:
        wanted = expected[row["physical_offset"]]
        # A pull adds properties about the queue for the client.
        row["properties"] = {key: row["properties"].get(key) for key in wanted["properties"]}
        assert {key: row[key] for key in wanted} == wanted


def check_look_ups(servers: RocketMQ, messages: list[Message]) -> None:
    """Check that every id, key and UNIQ_KEY finds its messages. Halves that the broker has put back come after."""
    end = max(message.physical_offset for message in messages)
    by_key: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for message in messages:
        by_key["id", message.topic, message.msg_id].add(message.physical_offset)
        for key in message.keys or []:
            by_key["key", message.topic, key].add(message.physical_offset)
    questions = list(by_key)
    found: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for start in range(0, len(questions), 1000):
        for row in look_up(servers, *questions[start : start + 1000]):
            if row["physical_offset"] <= end:
                found[row["verb"], row["topic"], row["value"]].add(row["physical_offset"])
    assert found == by_key
    unique = [("unique", message.topic, message.unique_key) for message in messages if message.unique_key]
    answered = {(row["topic"], row["value"]) for row in look_up(servers, *unique[::7])}
    assert answered == {(topic, key) for _, topic, key in unique[::7]}


# --- a real broker's store in ours ---


def options_for(recorded: RecordedStore) -> StoreOptions:
    """Return our settings for a recorded store."""
    wanted = RECORDING_OPTIONS
    assert wanted.segment_size_bytes is not None
    assert wanted.consume_queue_file_size_bytes is not None
    assert wanted.max_hash_slot_num is not None
    assert wanted.max_index_num is not None
    assert wanted.message_delay_level is not None
    return StoreOptions(
        segment_size_bytes=wanted.segment_size_bytes,
        consume_queue_file_size_bytes=wanted.consume_queue_file_size_bytes,
        index_slots=wanted.max_hash_slot_num,
        index_entries=wanted.max_index_num,
        message_delay_level=wanted.message_delay_level,
        index_tags=recorded.version >= "5.5",
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> list[bytes]:
    """Return the files of a folder, in the order of their names."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_every_message_of_rocketmq_is_found_by_offset_by_id_and_by_key(
    recorded_store: RecordedStore, tmp_path: Path, crashed: bool
) -> None:
    root = recorded_store.copy_to(tmp_path / "copy")
    if crashed:
        (root / "abort").write_text("1")
    with MessageStore.open(root, options_for(recorded_store)) as store:
        assert store.recovery.crashed is crashed
        for row in recorded_store.decoded:
            check_message(store, row)


def check_message(store: MessageStore, row: Row) -> None:
    """Check that each look-up finds a record of the real broker's."""
    (by_offset,) = store.get(row["topic"], row["queue_id"], row["queue_offset"], 1).messages
    assert by_offset.physical_offset == row["physical_offset"]
    assert store.get_by_id(row["msg_id"]) == by_offset
    assert (by_offset.body_crc, by_offset.size) == (row["body_crc"], row["size"])
    assert by_offset.properties == row["properties"]
    at = row["store_timestamp"]
    keys: list[Any] = [*(row["keys"] or []), by_offset.properties.get("UNIQ_KEY")]
    for key in filter(None, keys):
        assert by_offset in store.get_by_key(row["topic"], key, at, at, limit=1 << 20)


@pytest.mark.parametrize("keep", [(), ("consumequeue",), ("index",), ("consumequeue", "index")])
def test_queues_and_index_rebuilt_from_rocketmqs_log_equal_its_own(
    recorded_store: RecordedStore, tmp_path: Path, keep: tuple[str, ...]
) -> None:
    root = tmp_path / "rebuilt"
    for name in ("commitlog", *keep):
        shutil.copytree(recorded_store.store / name, root / name)
    MessageStore.open(root, options_for(recorded_store)).close()
    assert tree(root / "commitlog") == tree(recorded_store.store / "commitlog")
    assert tree(root / "consumequeue") == tree(recorded_store.store / "consumequeue")
    assert contents(root / "index") == contents(recorded_store.store / "index")


def test_rocketmq_and_broker_lite_continue_each_others_store(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "copy")
    options = replace(options_for(recorded_store), store_host=Host.of("127.0.0.1", recorded_store.broker_port))
    template = next(row for row in recorded_store.decoded if row["topic"] == "EveryKeyed")
    with MessageStore.open(root, options) as store:
        known = store.get_at(template["physical_offset"])
        assert known is not None
        ours = store.put(
            replace(to_new_message(known), queue_id=0, properties=(("KEYS", "from-ours"), ("UNIQ_KEY", "F" * 32)))
        )
    servers = start_broker(recorded_store.version, root, RECORDING_OPTIONS, recorded_store.broker_port)
    found = look_up(servers, ("key", "EveryKeyed", "from-ours"))
    assert [(row["physical_offset"], row["queue_offset"]) for row in found] == [
        (ours.physical_offset, ours.queue_offset)
    ]
    servers.stop_broker()
    with MessageStore.open(root, options) as store:
        assert [got.physical_offset for got in store.get_by_key("EveryKeyed", "from-ours")] == [ours.physical_offset]
        for row in recorded_store.decoded[::50]:
            check_message(store, row)
