"""Properties, ids, hashes, queue and index entries, checkpoint: against a real broker's values."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.base import Field, Layout
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq import checkpoint, consumequeue, indexfile
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, parse_checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.hosts import Host, parse_host, serialize_host
from commitlake.schemas.layouts.rocketmq.key_hashes import extend_java_hash, java_hash
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id, serialize_message_id
from commitlake.schemas.layouts.rocketmq.properties import (
    parse_priority,
    parse_properties,
    serialize_properties,
    split_keys,
)
from commitlake.schemas.layouts.rocketmq.sysflag import (
    BodyCodec,
    TransactionType,
    body_codec,
    compression_bits,
    transaction_type,
)
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.layouts.segment_names import parse_queue_folder, parse_segment_name, segment_name


def test_layout_derives_offsets_size_and_numpy_fields() -> None:
    layout = Layout(Field("a", "i", ""), Field("b", "q", ""), Field("c", "H", ""))
    assert [layout.offset_of(name) for name in "abc"] == [0, 4, 12]
    assert layout.size == 14
    assert layout.numpy_fields == [("a", ">i4"), ("b", ">i8"), ("c", ">u2")]
    assert layout.unpack(b"x" + layout.pack(1, -2, 3), 1) == (1, -2, 3)


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"", []),
        (b"K\x01v\x02", [("K", "v")]),
        (b"K\x01v", [("K", "v")]),  # brokers 4.9.1 to 5.1.4 drop the last separator
        (b"K\x01v\x02L\x01w", [("K", "v"), ("L", "w")]),
        (b"K\x01v\x02K\x01w\x02", [("K", "v"), ("K", "w")]),
        (b"K\x01a\x01b\x02", [("K", "a\x01b")]),  # the first 0x01 splits
        (b"\x01v\x02K\x01\x02noseparator\x02\x02L\x01w\x02", [("L", "w")]),  # no key, no value, neither
        ("城市\x01东京😀\x02".encode(), [("城市", "东京😀")]),
        (b"K\x01\xffv\x02", [("K", "\ufffdv")]),
    ],
)
def test_properties_are_split_as_the_brokers_decoder_does(data: bytes, pairs: list[tuple[str, str]]) -> None:
    assert parse_properties(data) == pairs


@pytest.mark.parametrize("pairs", [[("", "v")], [("k", "")], [("k\x01", "v")], [("k", "v\x02")], [("k", "v" * 32766)]])
def test_properties_that_would_not_be_read_back_are_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UnserializableError, match="properties"):
        serialize_properties(pairs)


def test_properties_may_have_32767_bytes() -> None:
    assert len(serialize_properties([("k", "v" * 32764)])) == 32767


def test_keys_are_split_at_spaces() -> None:
    assert split_keys(" order-1  order-2 ") == ["order-1", "order-2"]
    assert split_keys("") == []


@pytest.mark.parametrize(("text", "priority"), [(None, None), ("3", 3), ("x", None), (str(2**31), None)])
def test_priority_is_a_number_or_none(text: str | None, priority: int | None) -> None:
    assert parse_priority(text) == priority


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0), ("TagA", 2598919), ("TagB", 2598920), ("PaymentFailed", 1840170435), ("TagNeg", -1797390410),
        ("AAAAAAA", -518878239), ("订单", 1129459), ("😀", 1772899), ("polygenelubricants", -(2**31)),
    ],
)  # fmt: skip
def test_hash_is_that_of_java(text: str, code: int) -> None:
    assert java_hash(text) == code
    assert consumequeue.tags_code(text) == code


@pytest.mark.parametrize("head", ["", "orders#", "字\U0001f600", "x" * 200])
@pytest.mark.parametrize(
    "tail", ["", "0", "7F0000010A0018B4AAC2", "字", "a\U0001f600b", "\ud800", "y" * 127, "y" * 128]
)
def test_a_hash_continues_from_an_earlier_one(head: str, tail: str) -> None:
    assert extend_java_hash(java_hash(head), tail) == java_hash(head + tail)


def test_queue_entry_has_the_bytes_of_the_broker() -> None:
    data = bytes.fromhex("00000000 00000000 000000b6 00000000 0027a807")
    entry = consumequeue.ConsumeQueueEntry(0, 182, 2598919)
    assert consumequeue.serialize_entry(entry) == data
    assert consumequeue.parse_entry(b"??" + data, 2) == entry
    assert entry.is_valid
    assert not consumequeue.ConsumeQueueEntry(0, 0, 0).is_valid
    assert consumequeue.serialize_entry(consumequeue.PRE_BLANK).hex() == "00000000000000007fffffff0000000000000000"


def test_index_geometry_and_file_size_follow_from_each_other() -> None:
    assert indexfile.Geometry().file_size == 420_000_040
    assert indexfile.geometry_of(420_000_040) == indexfile.Geometry()
    assert indexfile.Geometry(5, 10).file_size == 260
    with pytest.raises(LayoutError, match="file size"):
        indexfile.geometry_of(260)


def test_index_header_and_entries_have_the_bytes_of_the_broker() -> None:
    header = indexfile.Header(1_700_000_000_456, 1_700_000_007_999, 0, 4096, 2, 4)
    data = bytes.fromhex("0000018bcfe569c8 0000018bcfe5873f 0000000000000000 0000000000001000 00000002 00000004")
    assert indexfile.serialize_header(header) == data
    assert indexfile.parse_header(data) == header
    with pytest.raises(LayoutError, match="40 bytes"):
        indexfile.parse_header(data[:39])
    entry = indexfile.IndexFileEntry(indexfile.key_hash("TopicTest", "order-1001"), 4096, 7, 2)
    assert indexfile.serialize_entry(entry).hex() == "3e37330100000000000010000000000700000002"
    assert indexfile.parse_entry(indexfile.serialize_entry(entry), 0) == entry


def test_index_hash_has_no_negative_value() -> None:
    assert indexfile.key_hash("TopicTest", "C0A8010A1F9018B4AAC2000000010000") == 2070015731
    # "polygenelubricants" hashes to the one int without an absolute value; so does this "topic#key"
    key = next(k for k in ("polygenelubricants",))
    assert abs(java_hash(key)) == 2**31


@pytest.mark.parametrize(
    ("stored", "begin", "seconds"), [(7999, 456, 7), (456, 456, 0), (100, 456, 0), (2**60, 1, 2**31 - 1)]
)
def test_index_time_is_in_whole_seconds(stored: int, begin: int, seconds: int) -> None:
    assert indexfile.time_diff_seconds(stored, begin) == seconds


def test_checkpoint_is_a_page_with_five_values() -> None:
    data = serialize_checkpoint(Checkpoint(1_700_000_000_456, 1_700_000_000_456))
    assert len(data) == checkpoint.FILE_SIZE
    assert data[:16].hex() == "0000018bcfe569c80000018bcfe569c8"
    assert not any(data[16:])
    assert parse_checkpoint(data) == Checkpoint(1_700_000_000_456, 1_700_000_000_456)
    assert parse_checkpoint(data).min_timestamp == 1_699_999_997_456
    assert Checkpoint(5, 2).min_timestamp == 0
    with pytest.raises(LayoutError, match="39 bytes"):
        parse_checkpoint(data[:39])


@pytest.mark.parametrize(
    ("ip", "msg_id"),
    [
        ("10.0.0.1", "0A00000100002A9F0000000000001000"),
        ("2001:db8::2", "20010DB800000000000000000000000200002A9F0000000000001000"),
    ],
)
def test_message_id_names_host_and_offset(ip: str, msg_id: str) -> None:
    host = Host.of(ip, 10911)
    assert serialize_message_id(host, 4096) == msg_id
    assert parse_message_id(msg_id) == (host, 4096)
    assert parse_message_id(msg_id.lower()) == (host, 4096)


@pytest.mark.parametrize(
    "text", ["", "0A", "0A00000100002A9F000000000000100", "G" * 32, "0A 0000100002A9F000000000000100 "]
)
def test_invalid_message_id_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="msg_id"):
        parse_message_id(text)


def test_hosts_are_stored_with_four_byte_ports() -> None:
    assert serialize_host(Host.of("192.168.1.10", 50123)).hex() == "c0a8010a0000c3cb"
    host = parse_host(bytes.fromhex("20010db8000000000000000000000001 0000c3cb"), 0, is_v6=True)
    assert str(host) == "[2001:db8::1]:50123"
    assert str(Host.of("10.0.0.1", 1)) == "10.0.0.1:1"


@pytest.mark.parametrize(
    ("flag", "codec"),
    [
        (0, "none"), (0x300, "none"), (1, "zlib"), (0x101, "lz4"), (0x201, "zstd"), (0x301, "zlib"), (0x401, "unknown"),
        (0x701, "unknown"),
    ],
)  # fmt: skip
def test_codec_follows_from_the_flag(flag: int, codec: str) -> None:
    assert body_codec(flag) == codec


@pytest.mark.parametrize("codec", [BodyCodec.NONE, BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD])
def test_flag_bits_of_a_codec_are_read_back(codec: BodyCodec) -> None:
    assert body_codec(compression_bits(codec)) is codec


def test_transaction_type_is_two_bits() -> None:
    assert [transaction_type(flag) for flag in (0, 4, 8, 12, 0xFB)] == [
        TransactionType.NOT, TransactionType.PREPARED, TransactionType.COMMIT, TransactionType.ROLLBACK,
        TransactionType.COMMIT,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", Kind.NORMAL), ("../../etc/passwd", Kind.NORMAL), ("", Kind.NORMAL),
        ("SCHEDULE_TOPIC_XXXX", Kind.DELAY),
        ("%RETRY%g", Kind.RETRY), ("%DLQ%g", Kind.DLQ), ("RMQ_SYS_TRANS_HALF_TOPIC", Kind.HALF),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", Kind.OP), ("RMQ_SYS_TRACE_TOPIC", Kind.TRACE),
        ("rmq_sys_TRACE_DATA_eu", Kind.TRACE), ("rmq_sys_wheel_timer", Kind.TIMER),
        ("rmq_sys_REVIVE_LOG_c", Kind.SYSTEM), ("TBW102", Kind.SYSTEM),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", Kind.SYSTEM), ("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", Kind.SYSTEM),
    ],
)  # fmt: skip
def test_kind_follows_from_the_stored_topic(topic: str, kind: Kind) -> None:
    assert kind_of(topic) is kind


def test_segment_names_are_offsets() -> None:
    assert segment_name(1 << 30) == "00000000001073741824"
    assert parse_segment_name("00000000001073741824") == 1 << 30
    assert parse_segment_name("٠٠٠٠٠٠٠٠٠٠١٠٧٣٧٤١٨٢٤") == 1 << 30  # a broker under an Arabic locale
    assert [parse_segment_name(name) for name in ("", "abc", "1", "0000000000107374182x", "0" * 21, "²" * 20)] == [
        None
    ] * 6


@pytest.mark.parametrize("name", ["9" * 20, "09223372036854775808", "09223372036854775807", "04611686018427387905"])
def test_a_segment_name_beyond_the_largest_offset_is_invalid(name: str) -> None:
    assert parse_segment_name(name) is None
    assert parse_segment_name("04611686018427387904") == 1 << 62


@pytest.mark.parametrize(
    ("name", "number"),
    [("0", 0), ("17", 17), ("2147483647", 2147483647), ("2147483648", None), ("007", None), ("-1", None)]
    + [(name, None) for name in ("", "+7", "7x", "\u0661", "9" * 255)],
)
def test_a_queues_folder_is_its_number(name: str, number: int | None) -> None:
    assert parse_queue_folder(name) == number
