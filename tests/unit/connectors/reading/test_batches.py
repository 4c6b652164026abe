"""Rows that a task returns for a split, by mode, filter and column."""

from __future__ import annotations

import logging
import os
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import DecoderCache, read_split
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import BodyForm, Mode
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.tables.messages import SOURCE
from tests.support.batches import SIZE, log_of, rows_of, source_schema, splits_of
from tests.support.logs import START_MS, closed_segment, messages, new_message, open_segment, records, write_store


def patched(sent: Sequence[NewMessage], old: bytes, new: bytes) -> bytes:
    """Return an open segment in which some bytes are replaced, which the CRC does not cover."""
    data = log_of(sent)
    assert data.count(old) == 1
    assert len(old) == len(new)
    return data.replace(old, new)


def test_columns_are_in_the_requested_order(tmp_path: Path) -> None:
    schema = source_schema("tags", "physical_offset", "body")
    batches = [
        batch for split in splits_of(tmp_path, log_of(messages(3))) for batch in read_split(split, Request(schema))
    ]
    assert [batch.schema.names for batch in batches] == [["tags", "physical_offset", "body"]]


def test_few_rows_do_not_keep_the_buffers_of_thousands(tmp_path: Path) -> None:
    (split,) = splits_of(tmp_path, log_of(messages(30)))
    for schema in (source_schema(), source_schema("physical_offset", "queue_offset")):
        tracemalloc.start()
        batches = [batch for _ in range(30) for batch in read_split(split, Request(schema))]
        held, _ = tracemalloc.get_traced_memory()  # numpy's arrays
        tracemalloc.stop()
        assert sum(batch.num_rows for batch in batches) == 900
        assert held < 6 << 20  # the decoder of one split
        assert sum(batch.get_total_buffer_size() for batch in batches) < 2 << 20


@pytest.mark.parametrize("kept_values", [0, 3, 1024])
def test_a_kept_decoder_reads_the_same_from_the_next_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_values: int
) -> None:
    monkeypatch.setattr("commitlake.connectors.reading.decoding.columns._MAX_KEPT", kept_values)
    logs = [
        patched([*messages(9), new_message(9, topic="broken")], b"broken", b"brok\xffn"),
        log_of(messages(20, seed=2)),
        log_of([new_message(number, topic="another") for number in range(9)]),
        log_of(messages(5, seed=3)),
    ]
    splits = [split for number, log in enumerate(logs) for split in splits_of(tmp_path / str(number), log)]
    request, last = Request(source_schema(), Mode.PERMISSIVE, encoded=True), DecoderCache()
    kept = [row for split in splits for batch in read_split(split, request, None, last) for row in batch.to_pylist()]
    assert kept == [row for split in splits for batch in read_split(split, request) for row in batch.to_pylist()]
    assert len({row["topic"] for row in kept}) == 5
    others = [replace(split, broker="other") for split in splits]
    kept = [row for split in others for batch in read_split(split, request, None, last) for row in batch.to_pylist()]
    assert {row["broker"] for row in kept} == {"other"}


def test_a_column_that_the_format_does_not_have_is_null(tmp_path: Path) -> None:
    schema = pa.schema([("size", pa.int32()), ("of_another_format", pa.int64())])
    (split,) = splits_of(tmp_path, log_of(messages(2)))
    (batch,) = read_split(split, Request(schema))
    assert batch.schema == schema
    assert batch.column("of_another_format").null_count == 2


@pytest.mark.parametrize("column", [field.name for field in SOURCE])
def test_every_column_can_be_read_alone(tmp_path: Path, column: str) -> None:
    data = log_of(messages(10))
    together = rows_of(splits_of(tmp_path, data))
    assert rows_of(splits_of(tmp_path, data), Mode.FAILFAST, column) == [{column: row[column]} for row in together]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), range(12)),
        (Filters(topics=frozenset({"topic-1"})), range(1, 12, 3)),
        (Filters(topics=frozenset({"nothing"})), []),
        (Filters(queue_ids=frozenset({0, 1})), [0, 1, 4, 5, 8, 9]),
        (Filters(min_store_timestamp=START_MS + 1003, end_store_timestamp=START_MS + 1005), [3, 4]),
        (Filters(topics=frozenset({"topic-0", "topic-1"}), queue_ids=frozenset({3})), [3, 7]),
    ],
)
def test_filters_keep_the_matching_records(tmp_path: Path, filters: Filters, expected: Sequence[int]) -> None:
    rows = rows_of(splits_of(tmp_path, log_of(messages(12))), Mode.FAILFAST, "keys", filters=filters)
    assert [row["keys"] for row in rows] == [[f"order-{number}"] for number in expected]


def test_offsets_keep_the_records_between_them(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, log_of(messages(12)))
    offsets = [row["physical_offset"] for row in rows_of(splits, Mode.FAILFAST, "physical_offset")]
    filters = Filters(min_offset=offsets[3], end_offset=offsets[5])  # type: ignore[arg-type]
    rows = rows_of(splits, Mode.FAILFAST, "physical_offset", filters=filters)
    assert [row["physical_offset"] for row in rows] == offsets[3:5]


@pytest.mark.parametrize("window", [8, 100, 1000, 1 << 20])
def test_rows_do_not_depend_on_the_window(tmp_path: Path, window: int) -> None:
    data = log_of([*messages(10), new_message(10, body=bytes(range(256)) * 8)])
    assert rows_of(splits_of(tmp_path, data), max_batch_bytes=window) == rows_of(splits_of(tmp_path, data))


def damaged(tmp_path: Path) -> list[Split]:
    """Write ten records of which the fourth fails its CRC; return their splits."""
    data = bytearray(log_of([new_message(number, body=b"body") for number in range(10)]))
    size = len(records([new_message(0, body=b"body")])[0])
    data[3 * size + 88] ^= 1
    return splits_of(tmp_path, bytes(data))


def test_failfast_names_file_place_and_both_values(tmp_path: Path) -> None:
    with pytest.raises(
        DamagedLogError, match=r"0{20}, byte (\d+) \(physical offset \1, .*body_crc: expected \d+, found \d+"
    ):
        rows_of(damaged(tmp_path), Mode.FAILFAST)


def test_record_whose_properties_exceed_their_length_is_a_bad_range_as_for_a_broker(tmp_path: Path) -> None:
    """A broker reads the length as a negative number; its recovery ends the log there, and no queue has the record."""
    head = len(records([new_message(0, properties=())])[0]) - 2
    sent, offset = [], 0
    for number in range(10):
        properties = b"k\x01" + b"v" * 39_952 if number == 5 else b"TAGS\x01TagA"
        record = bytearray(records([new_message(number, properties=())], offset)[0][:head])
        record[:4] = (head + 2 + len(properties)).to_bytes(4, "big")
        sent.append(bytes(record) + len(properties).to_bytes(2, "big") + properties)
        offset += len(sent[-1])
    long = sent[5]
    splits = splits_of(tmp_path, b"".join(sent).ljust(1 << 16, b"\0"))
    notes = [row["_corrupt_record"] for row in rows_of(splits, Mode.PERMISSIVE, "topic", "_corrupt_record")]
    assert notes.count(None) == 9
    (note,) = (note for note in notes if note is not None)
    start = sum(map(len, sent[:5]))
    assert isinstance(note, dict)
    assert (note["reason"], note["start"], note["end"]) == ("part_lengths", start, start + len(long))
    with pytest.raises(LayoutError, match="properties_length at byte 99: expected 39954, found -25582"):
        parse_message(long)


def test_permissive_gives_the_bad_range_as_a_row(tmp_path: Path) -> None:
    rows = rows_of(damaged(tmp_path))
    assert len(rows) == 10
    (bad,) = [row for row in rows if row["_corrupt_record"]]
    note = bad["_corrupt_record"]
    assert isinstance(note, dict)
    assert note["reason"] == "body_crc"
    assert note["start"] == bad["physical_offset"]
    assert note["first_bytes"][4:8] == b"\xda\xa3\x20\xa7"
    assert {name for name, value in bad.items() if value is not None} == {
        "broker",
        "physical_offset",
        "_corrupt_record",
    }


def test_dropmalformed_counts_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(rows_of(damaged(tmp_path), Mode.DROPMALFORMED)) == 9
    assert "dropped 1 body_crc" in caplog.text


def test_a_filter_by_topic_returns_no_bad_ranges(tmp_path: Path) -> None:
    assert len(rows_of(damaged(tmp_path), filters=Filters(topics=frozenset({"orders"})))) == 9


def test_properties_that_are_not_utf8_are_kept_and_marked(tmp_path: Path) -> None:
    sent = [new_message(0), new_message(1, properties=(("city", "Muenchen"), ("KEYS", "k"))), new_message(2)]
    splits = splits_of(tmp_path, patched(sent, b"Muenchen", b"M\xfcnchen1"))
    rows = rows_of(splits)
    assert dict(rows[1]["properties"])["city"] == "M\ufffdnchen1"  # type: ignore[call-overload]
    assert rows[1]["keys"] == ["k"]
    note = rows[1]["_corrupt_record"]
    assert isinstance(note, dict)
    assert note["reason"] == "properties_encoding"
    assert "0xfc" in note["found"]
    assert [rows[0]["_corrupt_record"], rows[2]["_corrupt_record"]] == [None, None]
    assert rows[2]["keys"] == ["order-2"]
    with pytest.raises(DamagedLogError, match="properties_encoding"):
        rows_of(splits, Mode.FAILFAST)
    assert len(rows_of(splits, Mode.DROPMALFORMED)) == 2


def test_topic_that_is_not_utf8_is_kept_and_marked(tmp_path: Path) -> None:
    rows = rows_of(splits_of(tmp_path, patched([new_message(0, topic="Muenchen")], b"Muenchen", b"M\xfcnchen1")))
    assert rows[0]["topic"] == "M\ufffdnchen1"
    assert rows[0]["_corrupt_record"]["reason"] == "topic_encoding"  # type: ignore[index]


def test_topic_with_a_path_in_it_is_just_text(tmp_path: Path) -> None:
    rows = rows_of(
        splits_of(tmp_path, log_of([new_message(0, topic="../../etc/passwd")])), Mode.FAILFAST, "topic", "kind"
    )
    assert rows == [{"topic": "../../etc/passwd", "kind": "normal"}]


@pytest.mark.parametrize("born", [-1, 1 << 62, 253_402_300_800_000])
def test_time_outside_the_calendar_is_null_and_marked(tmp_path: Path, born: int) -> None:
    rows = rows_of(splits_of(tmp_path, log_of([new_message(0, born_timestamp=born), new_message(1)])))
    assert rows[0]["born_timestamp"] is None
    assert rows[0]["_corrupt_record"]["reason"] == "timestamp"  # type: ignore[index]
    assert rows[0]["keys"] == ["order-0"]
    assert rows[1]["_corrupt_record"] is None


def test_repeated_keys_show_the_last_value(tmp_path: Path) -> None:
    pairs = (("UNIQ_KEY", "own"), ("A", "1"), ("UNIQ_KEY", "batch"), ("A", "2"))
    rows = rows_of(
        splits_of(tmp_path, log_of([new_message(properties=pairs)])), Mode.FAILFAST, "properties", "unique_key"
    )
    assert rows == [{"properties": [("UNIQ_KEY", "batch"), ("A", "2")], "unique_key": "own"}]


@pytest.mark.parametrize("count", [23, 24, 25, 200, 8191])
def test_any_number_of_properties_is_read(tmp_path: Path, count: int) -> None:
    pairs = tuple((chr(0x4E00 + number % 200)[:1] + str(number % 200), "v") for number in range(min(count, 2000)))
    many = tuple((f"{number:x}", "v") for number in range(min(count, 4000)))
    for properties in (pairs, many):
        sent = [new_message(properties=properties)]
        splits = splits_of(tmp_path, open_segment(sent, 1 << 16))
        (row,) = rows_of(splits, Mode.FAILFAST, "properties")
        assert row["properties"] == list(dict(properties).items())


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_bodies_are_decompressed_on_request(tmp_path: Path, codec: str) -> None:
    text = b"a body that repeats, a body that repeats " * 20
    stored = zlib.compress(text, 5) if codec == "zlib" else compress_stream(text, codec)
    sent = [new_message(0, body=stored, sys_flag=compression_bits(BodyCodec(codec))), new_message(1, body=b"plain")]
    splits = splits_of(tmp_path, log_of(sent))
    rows = rows_of(splits, Mode.FAILFAST, "body", "body_codec", "body_size", body=BodyForm.DECOMPRESSED)
    assert [row["body"] for row in rows] == [text, b"plain"]
    assert [row["body_codec"] for row in rows] == [codec, "none"]
    assert rows[0]["body_size"] == len(stored)
    assert rows_of(splits, Mode.FAILFAST, "body")[0]["body"] == stored


def compress_stream(data: bytes, codec: str) -> bytes:
    """Compress data as a file of this codec."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("body", "limit"),
    [(zlib.compress(bytes(1 << 20)), 1000), (b"not zlib", 1 << 20), (zlib.compress(b"x" * 99)[:-6], 1 << 20)],
)
def test_bodies_that_are_bombs_or_cut_are_null_and_marked(tmp_path: Path, body: bytes, limit: int) -> None:
    sent = [new_message(0, body=body, sys_flag=compression_bits(BodyCodec.ZLIB)), new_message(1)]
    rows = rows_of(splits_of(tmp_path, log_of(sent)), body=BodyForm.DECOMPRESSED, max_body_bytes=limit)
    assert rows[0]["body"] is None
    assert rows[0]["_corrupt_record"]["reason"] == "body_compression"  # type: ignore[index]
    assert rows[1]["body"] == b"body"


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_decompression_bombs_take_no_more_memory_than_a_batch(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, size, count = 1 << 20, 300_000, 60
    monkeypatch.setattr("commitlake.connectors.reading.decoding.row_batch.BATCH_BYTES", limit)
    bomb = zlib.compress(bytes(size)) if codec == "zlib" else compress_stream(bytes(size), codec)
    flags = compression_bits(BodyCodec(codec))
    sent = [new_message(n, body=bomb, sys_flag=flags) if n % 7 else new_message(n, body=b"x") for n in range(count)]
    splits = splits_of(tmp_path, open_segment(sent, 1 << 18))
    rows, most = memory_of(splits[0], BodyForm.DECOMPRESSED, limit)
    assert rows == [(n % 4, size if n % 7 else 1) for n in range(count)]
    assert most - memory_of(splits[0], BodyForm.STORED, limit)[1] < 6 * limit  # of 15.5 MB of bodies


def memory_of(split: Split, form: BodyForm, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Read with at most `limit` bytes of bodies in a batch; return queue and body size by row, and peak memory."""
    wanted = Request(source_schema("queue_id", "body", "_corrupt_record"), Mode.PERMISSIVE, body=form)
    rows: list[tuple[int, int]] = []
    before, arrow = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        for batch in read_split(split, wanted):
            sizes = [len(body.as_py()) for body in batch.column("body")]
            assert sum(sizes) <= limit
            assert batch.column("_corrupt_record").null_count == len(sizes)
            rows += zip(batch.column("queue_id").to_pylist(), sizes, strict=True)
            arrow = max(arrow, pa.total_allocated_bytes() - before)
        return rows, arrow + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_body_larger_than_the_limit_is_a_separate_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.connectors.reading.decoding.row_batch.BATCH_BYTES", 1000)
    sent = [
        new_message(n, body=zlib.compress(bytes(size)), sys_flag=compression_bits(BodyCodec.ZLIB))
        for n, size in enumerate([400, 5000, 600, 400, 1])
    ]
    wanted = Request(source_schema("body"), Mode.FAILFAST, body=BodyForm.DECOMPRESSED)
    batches = read_split(splits_of(tmp_path, log_of(sent))[0], wanted)
    assert [[len(one.as_py()) for one in batch.column("body")] for batch in batches] == [[400], [5000], [600, 400], [1]]


def test_file_cut_after_planning_is_a_bad_range_and_not_a_crash(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, log_of(messages(10)))
    offsets = [row["physical_offset"] for row in rows_of(splits)]
    os.truncate(splits[0].path, int(offsets[6]) + 10)  # type: ignore[call-overload]
    rows = rows_of(splits)
    assert [row["physical_offset"] for row in rows if row["size"]] == offsets[:6]
    bad = [row["_corrupt_record"] for row in rows if not row["size"]]
    assert {note["reason"] for note in bad} == {"cut"}  # type: ignore[index]
    assert (bad[0]["start"], bad[-1]["end"]) == (offsets[6], splits[0].end)  # type: ignore[index]
    with pytest.raises(DamagedLogError, match="cut"):
        rows_of(splits, Mode.FAILFAST)


def test_file_deleted_after_planning_is_a_missing_segment(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, log_of(messages(10)))
    Path(splits[0].path).unlink()
    (row,) = rows_of(splits)
    assert row["_corrupt_record"]["reason"] == "missing_segment"  # type: ignore[index]
    assert "deleted since it was listed" in row["_corrupt_record"]["found"]  # type: ignore[index]
    with pytest.raises(DamagedLogError, match="missing_segment"):
        rows_of(splits, Mode.FAILFAST)


def test_file_that_grows_after_planning_gives_the_planned_records(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, log_of(messages(10)))
    Path(splits[0].path).write_bytes(log_of(messages(20)))
    assert len(rows_of(splits, Mode.FAILFAST, "size")) == 10


def test_older_segment_that_ends_in_zeros_has_a_hole(tmp_path: Path) -> None:
    root = write_store(tmp_path, [(0, log_of(messages(3))), (SIZE, open_segment(messages(3), SIZE, SIZE))])
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    rows = rows_of(plan_splits(store, take_snapshot([store]).ranges["b"], 1 << 20))
    (bad,) = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    assert (bad["reason"], bad["end"]) == ("hole", SIZE)  # type: ignore[index]


def test_closed_segment_has_no_bad_range(tmp_path: Path) -> None:
    root = write_store(
        tmp_path, [(0, closed_segment(messages(3), SIZE)), (SIZE, open_segment(messages(3), SIZE, SIZE))]
    )
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    assert len(rows_of(plan_splits(store, take_snapshot([store]).ranges["b"], 1 << 20), Mode.FAILFAST)) == 6


def test_a_wrong_size_does_not_make_the_window_grow(tmp_path: Path) -> None:
    data = bytearray(log_of(messages(10)))
    (split,) = splits_of(tmp_path, bytes(data))
    data[0:4] = b"\x00\x00\x1f\xff"  # within the file, far more than the record
    Path(split.path).write_bytes(bytes(data))
    rows = rows_of([replace(split)], max_batch_bytes=256)
    assert len([row for row in rows if row["size"]]) == 9


@pytest.mark.parametrize("wanted", [{"\ufffdrders"}, {"\ufffdrders", "orders-2"}, {"orders-2"}])
def test_a_topic_that_is_not_utf8_is_found_by_its_displayed_text(tmp_path: Path, wanted: set[str]) -> None:
    sent = [new_message(0, topic="orders"), new_message(1, topic="orders-2"), new_message(2, topic="other")]
    splits = splits_of(tmp_path, patched(sent, b"orders\0", b"\xffrders\0"))
    filters = Filters(topics=frozenset(wanted))
    assert {row["topic"] for row in rows_of(splits, filters=filters)} == wanted
    rows = rows_of(splits, Mode.PERMISSIVE, "keys", filters=filters)
    assert len(rows) == len(wanted)
    with_keys = replace(filters, keys=frozenset({"order-0"}))
    rows = rows_of(splits, Mode.PERMISSIVE, "keys", "topic", filters=with_keys)
    assert [row["keys"] for row in rows] == ([["order-0"]] if "\ufffdrders" in wanted else [])
    encoded = rows_of(splits, Mode.PERMISSIVE, "topic", filters=filters, encoded=True)
    assert {row["topic"] for row in encoded} == wanted
