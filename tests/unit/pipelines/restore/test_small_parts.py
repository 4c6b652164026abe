"""Sizes of segments, stretches without a record, offsets, delays: tests with very small logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.restore.config_files import (
    limit_to_queue_ranges,
    parse_offsets,
    serialize_config_files,
    serialize_light_offsets,
)
from commitlake.pipelines.restore.log_rows import (
    RestoreSelection,
    derive_segment_size,
    find_log_range,
    first_undelivered_offsets,
)
from commitlake.pipelines.restore.record_writer import serialize_hosts, serialize_topics
from commitlake.pipelines.restore.segment_restore import find_gaps, select_fitting_records
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC
from commitlake.schemas.layouts.segment_names import DEFAULT_SEGMENT_SIZE
from commitlake.schemas.remoting.fastjson import parse_fastjson
from tests.support.logs import START_MS, new_message, open_segment, write_store
from tests.support.restored_stores import Restore

Archive = Callable[..., Lake]
BASE = 10_000


def log_of(size: int, count: int, start: int = 0, without: range = range(0)) -> tuple[Array, Array]:
    """Return the starts and ends of records of 300 to 700 bytes in segments of a size, some of them left out."""
    extents, at = [], start
    for number in range(count):
        length = 300 + number * 37 % 400
        if at % size + length + 8 > size:
            at += size - at % size
        if number not in without:
            extents.append((at, at + length))
        at += length
    starts, ends = np.array(extents, np.int64).T
    return starts, ends


@pytest.mark.parametrize("size", [4096, 10_000, 1 << 16, 104_857])
@pytest.mark.parametrize("start", [0, 3, 40])
@pytest.mark.parametrize("without", [range(0), range(1), range(5, 6), range(200, 203)])
def test_the_size_of_segments_is_found_from_the_log(size: int, start: int, without: range) -> None:
    assert derive_segment_size(*log_of(size, 3000, start * size, without)) == size


@pytest.mark.parametrize("without", [range(0), range(1), range(5, 6), range(1000, 1001)])
def test_a_log_within_one_segment_has_the_default_size(without: range) -> None:
    assert derive_segment_size(*log_of(DEFAULT_SEGMENT_SIZE, 3000, 0, without)) == DEFAULT_SEGMENT_SIZE
    assert derive_segment_size(*log_of(DEFAULT_SEGMENT_SIZE, 3000, 7 << 30, without)) == DEFAULT_SEGMENT_SIZE


def test_an_unknown_size_of_segments_must_be_given() -> None:
    starts = np.arange(3, dtype=np.int64) * 700_000_000
    with pytest.raises(UsageError, match="Give the size in the broker"):
        derive_segment_size(starts, starts + 700_000_000)


@pytest.mark.parametrize(
    ("extents", "is_closed", "kept"),
    [
        ([(0, 100), (100, 300)], True, [True, True]),
        ([(0, 100), (192, 300)], True, [True, True]),  # room for a filler
        ([(0, 100), (191, 300)], True, [True, False]),
        ([(1, 100), (191, 300)], True, [False, True]),
        ([(0, 100), (150, 180), (190, 300)], True, [True, False, False]),
        ([(0, 100), (150, 180), (192, 300)], True, [True, False, True]),
        ([(0, 992)], True, [True]),  # room for a BLANK
        ([(0, 993)], True, [False]),
        ([(0, 993)], False, [True]),
        ([(0, 500), (500, 993)], True, [True, False]),
        ([], True, []),
    ],
)
def test_records_are_kept_if_a_broker_can_read_past_them(
    extents: list[tuple[int, int]], is_closed: bool, kept: list[bool]
) -> None:
    starts, ends = np.array(extents, np.int64).reshape(-1, 2).T + BASE
    assert select_fitting_records(starts, ends, BASE, BASE + 1000, is_closed=is_closed).tolist() == kept


def test_stretches_between_records_have_the_time_of_the_record_before() -> None:
    starts, ends = np.array([[100, 200], [200, 300], [500, 600]], np.int64).T
    assert find_gaps(starts, ends, np.array([7, 8, 9]), 0) == [(0, 100, 7), (300, 500, 8)]
    assert find_gaps(starts[:0], ends[:0], starts[:0], 0) == []


def test_invalid_hosts_have_no_bytes() -> None:
    texts = ["10.0.0.1:10911", "[::1]:1", "[::1]:99999999999", "host:1", "10.0.0.1", "", None, "10.0.0.1:-1"]
    assert serialize_hosts(texts).sizes.tolist() == [8, 20, 0, 0, 0, 0, 0, 8]


def test_topics_that_do_not_fit_have_no_bytes() -> None:
    assert serialize_topics(["t", "t" * 128, "订" * 127, None, ""]).lengths.tolist() == [2, 130, 0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"t@g":{0:17,1:4}}}',
        '{"offsetTable":{"t@g":{"0":17,"1":4}}}',
        '{"dataVersion":{"counter":1},"offsetTable":{"t@g":{0:17,\t1:4\n}}}',
    ],
)
def test_offsets_are_read_in_both_forms_of_json(text: str) -> None:
    assert parse_offsets(text.encode(), "file") == {"t@g": {0: 17, 1: 4}}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"offsetTable":[]}', '{"offsetTable":{"t@g":[1]}}', '{"offsetTable":{"t@g":{"a":1}}}',
        '{"offsetTable":{"t@g":{0:"1"}}}', '{"offsetTable":{"t@g":{0:-1}}}', '{"offsetTable":{"t":{0:1}}}',
        '{"offsetTable":{"t@g":{0:9223372036854775808}}}', '{"offsetTable":{"t@g":{0:true}}}', "\xff", "{" * 100_000,
        '{"offsetTable":{},"lmqOffsetTable":[]}', '{"offsetTable":{},"lmqOffsetTable":{"a@b":"1"}}',
    ],
)  # fmt: skip
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"file: .*expected"):
        parse_offsets(text.encode("latin-1"), "file")


def test_offsets_are_limited_to_the_ends_of_their_queues() -> None:
    table = {"a@g": {0: 5, 1: 5, 2: 5}, "b@g": {0: 5}}
    fitting = limit_to_queue_ranges(table, {("a", 0): 5, ("a", 1): 4})
    assert (fitting.table, fitting.set_back, fitting.left_out) == ({"a@g": {0: 5, 1: 4}}, 1, 2)


def test_files_have_the_form_of_a_brokers() -> None:
    fitting = limit_to_queue_ranges({"a@g": {0: 5}}, {("a", 0): 5})
    known = {"g": {"groupName": "g", "retryMaxTimes": 3}, "other": {"groupName": "other"}}
    files = serialize_config_files(fitting, ["a", "%RETRY%h"], {2: 7, 1: 3}, 99, known)
    assert b'"offsetTable":{\n\t\t1:3,\n\t\t2:7\n\t}' in files["delayOffset.json"]
    assert files["subscriptionGroup.json"].count(b'"groupName"') == 3
    assert files["subscriptionGroup.json"].count(b'"retryMaxTimes":3') == 1


def test_a_broker_with_light_queues_gets_the_offsets_in_the_file_that_it_reads() -> None:
    fitting = limit_to_queue_ranges({"a@g": {0: 5}, "%LMQ%a@%LMQ%c": {0: 3}}, {("a", 0): 5, ("%LMQ%a", 0): 4})
    light = parse_fastjson(serialize_light_offsets(fitting, 99))
    assert (light["lmqOffsetTable"], light["offsetTable"]) == ({"%LMQ%a@%LMQ%c": 3}, {"a@g": {0: 5}})


def test_offsets_of_light_queues_are_restored(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    names = (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"),)
    sent = [
        new_message(number, properties=(*names, ("INNER_MULTI_QUEUE_OFFSET", f"{number},{number}")))
        for number in range(150)
    ]  # more than a file of queue entries has
    lake = archive(write_store(tmp_path / "store", [(0, open_segment(sent, 1 << 20))]))
    light = b'"lmqOffsetTable":{"%LMQ%a@%LMQ%g":140,"%LMQ%none@%LMQ%g":1}'
    given = b'{"offsetTable":{"orders@g":{0:9},"%LMQ%a@g":{0:200},"%LMQ%b@g":{0:150}},' + light + b"}"
    restored = restore(lake, offsets=parse_offsets(given, "file"))
    assert restored.offsets is not None
    assert (restored.offsets.set_back, restored.offsets.left_out) == (1, 1)
    config = restored.out / "config"
    written = parse_fastjson((config / "lmqConsumerOffset.json").read_bytes())
    assert written["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 140}
    assert written["offsetTable"] == {"orders@g": {0: 9}, "%LMQ%a@g": {0: 150}, "%LMQ%b@g": {0: 150}}
    assert "%LMQ%" not in (config / "topics.json").read_text()
    assert b'"%LMQ%a@g"' in (config / "consumerOffset.json").read_bytes()


def test_delays_that_were_due_count_as_delivered(tmp_path: Path, archive: Archive) -> None:
    # Stored from 1001 ms on, one each millisecond, in turn in the first two levels.
    sent = [new_message(number, topic=SCHEDULE_TOPIC, queue_id=number % 2) for number in range(100)]
    root = write_store(tmp_path / "store", [(0, open_segment(sent, 1 << 20))])
    lake = archive(root)
    table = lake.table("messages")
    log = find_log_range(table, RestoreSelection("a"))
    assert log.last_time == START_MS + 1099
    # In the first level, with a delay of 20 ms, messages stored before 1060 are delivered at 1080; in the second, none.
    done = first_undelivered_offsets(table, "a", log, [20, 1000], START_MS + 1080)
    first = min(number // 4 for number in range(100) if number % 2 == 0 and 1000 + number >= 1060)
    assert done == {1: first, 2: 0}
    assert first_undelivered_offsets(table, "a", log, [20, 30], START_MS + 5000) == {1: 25, 2: 25}
    assert first_undelivered_offsets(table, "a", log, [20], START_MS + 5000) == {1: 25}


def test_the_format_of_rows_is_found_from_a_column_or_the_ids(tmp_path: Path, archive: Archive) -> None:
    sent = [new_message(number) for number in range(3)]
    table = archive(write_store(tmp_path / "store", [(0, open_segment(sent, 1 << 20))])).table("messages")
    assert table.to_pyarrow_table(columns=["format"])["format"].unique().to_pylist() == ["rocketmq"]
    table.update({"format": "'jmq'"})
    with pytest.raises(UsageError, match="from a JMQ store"):
        find_log_range(table, RestoreSelection("a"))
    table.update({"format": "'kafka'"})
    with pytest.raises(UsageError, match="format 'kafka', which this version does not know: expected rocketmq or jmq"):
        find_log_range(table, RestoreSelection("a"))
    table.update({"format": "NULL"})  # as rows of earlier versions have it
    assert find_log_range(table, RestoreSelection("a")).records == 3
    table.update({"msg_id": "'orders/0/1@a'"})
    with pytest.raises(UsageError, match="from a JMQ store"):
        find_log_range(table, RestoreSelection("a"))


def test_a_damaged_time_does_not_mark_a_delay_as_delivered(tmp_path: Path, archive: Archive) -> None:
    sent = [new_message(number, topic=SCHEDULE_TOPIC, queue_id=0) for number in range(20)]
    data = bytearray(open_segment(sent, 1 << 20))
    at = data.index((START_MS + 1007).to_bytes(8))
    data[at : at + 8] = (START_MS + 10**12).to_bytes(8)
    table = archive(write_store(tmp_path / "store", [(0, bytes(data))])).table("messages")
    log = find_log_range(table, RestoreSelection("a"))
    assert log.last_time == START_MS + 1019
    assert first_undelivered_offsets(table, "a", log, [1000], log.last_time)[1] == 0
