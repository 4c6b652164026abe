"""The test vectors of the format's reference, as this store writes them.

A separate script wrote the bytes, and the library of RocketMQ 5.3.3 decoded them; letters are those of the reference.
This store does not write D (a CRC over the whole record), I (batch queues) and J (extended queues).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.broker_lite.stores.rocketmq.consume_queue import ConsumeQueue
from commitlake.broker_lite.stores.rocketmq.message_index import IndexFile
from commitlake.broker_lite.stores.rocketmq.message_writer import PutResult
from commitlake.broker_lite.stores.rocketmq.store_files import CheckpointFile
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, NewMessage
from commitlake.schemas.layouts.rocketmq.consumequeue import PRE_BLANK, serialize_entry
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.indexfile import Geometry, key_hash
from tests.support.message_stores import BORN_MS, BROKER, PRODUCER, SMALL, message
from tests.support.small_stores import STORED_MS, Clock

UNIQUE_KEY = "C0A8010A1F9018B4AAC2000000010000"
RECORD_A = bytes.fromhex(
    "000000b6 daa320a7 69c865ed 00000003 00000000 00000000 00000005 00000000"
    "00000000 00000000 0000018b cfe5687b c0a8010a 0000c3cb 0000018b cfe569c8"
    "0a000001 00002a9f 00000000 00000000 00000000 0000000e 48656c6c 6f20526f"
    "636b6574 4d510954 6f706963 54657374 00444b45 5953016f 72646572 2d313030"
    "3102554e 49515f4b 45590143 30413830 31304131 46393031 38423441 41433230"
    "30303030 30303130 30303002 54414753 01546167 4102"
)
RECORD_B = (
    bytes.fromhex(
        "000000e5 daa320ab 0cdc1683 00000000 00000000 00000000 00000000 00000000"
        "000000b6 00000000 0000018b cfe5687b c0a8010a 0000c3cb 0000018b cfe569c8"
        "0a000001 00002a9f 00000001 00000000 00000000 00000001 78008125 52455452"
        "5925"
    )
    + b"g" * 122
    + bytes.fromhex("0007 54414753 017402")
)
RECORD_C = bytes.fromhex(
    "0000007e daa320a7 77065916 00000000 00000000 00000000 00000000 00000000"
    "00000000 00000030 0000018b cfe5687b 20010db8 00000000 00000000 00000001"
    "0000c3cb 0000018b cfe569c8 20010db8 00000000 00000000 00000002 00002a9f"
    "00000000 00000000 00000000 00000002 76360254 36000754 41475301 7402"
)
MESSAGE_A = NewMessage(
    topic="TopicTest",
    body=b"Hello RocketMQ",
    born_timestamp=BORN_MS,
    born_host=PRODUCER,
    queue_id=3,
    properties=(("KEYS", "order-1001"), ("UNIQ_KEY", UNIQUE_KEY), ("TAGS", "TagA")),
)


def segment(root: Path) -> bytes:
    """Return the first segment's bytes."""
    return (root / "commitlog" / f"{0:020d}").read_bytes()


def test_a_record_v1_and_b_record_v2_follow_each_other(root: Path, store: MessageStore) -> None:
    # A is number 5 of its queue in the reference; a queue that starts there needs filler, as after retention.
    queue = store._files.queues.find_or_create("TopicTest", 3)
    assert isinstance(queue, ConsumeQueue)
    queue._start_at_byte_position(5 * 20)
    store.put(MESSAGE_A)
    store.put(
        NewMessage("%RETRY%" + "g" * 122, b"x", BORN_MS, PRODUCER, reconsume_times=1, properties=(("TAGS", "t"),))
    )
    assert segment(root)[: len(RECORD_A) + len(RECORD_B)] == RECORD_A + RECORD_B


def test_a_has_queue_offset_0_in_a_new_store(root: Path, store: MessageStore) -> None:
    expected = bytearray(RECORD_A)
    at = HEAD.offset_of("queue_offset")
    expected[at : at + 8] = bytes(8)
    result = store.put(MESSAGE_A)
    assert segment(root)[: result.size] == expected
    assert result.msg_id == "0A00000100002A9F0000000000000000"


def test_c_record_with_ipv6_hosts(root: Path, clock: Clock) -> None:
    options = StoreOptions(segment_size_bytes=4096, keep_index=False, store_host=Host.of("2001:db8::2", 10911))
    with MessageStore.open(root, options, clock=clock) as store:
        born = Host.of("2001:db8::1", 50123)
        result = store.put(NewMessage("T6", b"v6", BORN_MS, born, properties=(("TAGS", "t"),)))
    assert segment(root)[: result.size] == RECORD_C
    assert result.msg_id == "20010DB800000000000000000000000200002A9F0000000000000000"


@pytest.mark.parametrize(
    ("body", "stored"), [(b"a", 0x68B7BE43), (b"123456789", 0x4BF43926), (b"abc", 0x352441C2), (b"", 0)]
)
def test_e_checksum_has_its_top_bit_cleared(root: Path, store: MessageStore, body: bytes, stored: int) -> None:
    store.put(message(body=body))
    assert HEAD.unpack(segment(root))[2] == stored


def test_f_blank_declares_the_200_bytes_left(root: Path, clock: Clock) -> None:
    probe = message(body=b"")
    options = StoreOptions(segment_size_bytes=4096, keep_index=False)
    with MessageStore.open(root, options, clock=clock) as store:
        fixed = store.put(probe).size
        # Together with the probe, this one leaves 200 bytes of the segment.
        store.put(message(body=b"x" * (4096 - 200 - 2 * fixed)))
        store.put(message(body=b"y" * 200))
    assert segment(root)[-200:] == bytes.fromhex("000000c8 cbd43194") + bytes(192)


def test_g_queue_entry_of_a(root: Path, store: MessageStore) -> None:
    store.put(MESSAGE_A)
    stored = (root / "consumequeue" / "TopicTest" / "3" / f"{0:020d}").read_bytes()
    assert stored[:20] == bytes.fromhex("00000000 00000000 000000b6 00000000 0027a807")


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("TagB", 2598920),
        ("PaymentFailed", 1840170435),
        ("TagNeg", -1797390410),
        ("AAAAAAA", -518878239),
        ("订单", 1129459),
        ("😀", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_g_queue_entry_holds_the_hash_of_all_of_tags(store: MessageStore, tags: str, code: int) -> None:
    store.put(message(properties=(("TAGS", tags),)))
    entry = store.entry_at("orders", 0, 0)
    assert entry is not None
    assert entry.tags_code == code


def test_h_queue_entry_in_the_schedule_topic_holds_the_time_of_delivery(tmp_path: Path, store: MessageStore) -> None:
    store.put(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=(("DELAY", "3"), ("TAGS", "TagA"))))
    entry = store.entry_at("SCHEDULE_TOPIC_XXXX", 2, 0)
    assert entry is not None
    assert entry.tags_code == 1700000010456
    files = FileQueue(tmp_path / "queue", 200, "-", MappedFiles())
    ConsumeQueue("SCHEDULE_TOPIC_XXXX", 2, files).append(8192, 312, entry.tags_code)
    assert files.read(0, 20) == bytes.fromhex("00000000 00002000 00000138 0000018b cfe590d8")


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        ("18", STORED_MS + 7_200_000),
        ("99", STORED_MS + 7_200_000),
        ("0", 2598919),
        ("-1", 2598919),
        ("+1", STORED_MS + 1000),
    ],
)
def test_h_levels_are_limited_to_the_highest_and_ignored_below_1(store: MessageStore, delay: str, code: int) -> None:
    store.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", delay), ("TAGS", "TagA"))))
    entry = store.entry_at("SCHEDULE_TOPIC_XXXX", 0, 0)
    assert entry is not None
    assert entry.tags_code == code


def test_h_filler_before_a_queue_that_begins_late(tmp_path: Path) -> None:
    files = FileQueue(tmp_path / "queue", 200, "-", MappedFiles())
    ConsumeQueue("orders", 0, files)._start_at_byte_position(220)
    assert files.read(200, 20) == bytes.fromhex("00000000 00000000 7fffffff 00000000 00000000")
    assert serialize_entry(PRE_BLANK) == files.read(200, 20)


def test_k_index_file(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320456"
    file = IndexFile.create(path, Geometry(5, 10), MappedFiles(), None)
    file.put([(key_hash("TopicTest", key), 0) for key in (UNIQUE_KEY, "order-1001")], 1700000000456)
    file.put([(key_hash("TopicTest", "order-1001"), 4096)], 1700000007999)
    expected = bytes.fromhex(
        "0000018b cfe569c8 0000018b cfe5873f 00000000 00000000 00000000 00001000"
        "00000002 00000004 00000000 00000001 00000000 00000000 00000003 00000000"
        "00000000 00000000 00000000 00000000 7b61eef3 00000000 00000000 00000000"
        "00000000 3e373301 00000000 00000000 00000000 00000000 3e373301 00000000"
        "00001000 00000007 00000002"
    )
    assert path.read_bytes() == expected.ljust(260, b"\0")
    found = [list(file.lookup(key_hash("TopicTest", key), 0, 1 << 62)) for key in ("order-1001", UNIQUE_KEY)]
    assert found == [[4096, 0], [0]]


def test_l_message_id() -> None:
    assert PutResult(4096, 0, 0, 0, BROKER).msg_id == "0A00000100002A9F0000000000001000"


def test_m_checkpoint_of_a_store_with_one_message(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.put(message())
    expected = bytes.fromhex("0000018bcfe569c8 0000018bcfe569c8").ljust(4096, b"\0")
    assert (root / "checkpoint").read_bytes() == expected
    assert CheckpointFile(root).value.min_timestamp == STORED_MS - 3000
