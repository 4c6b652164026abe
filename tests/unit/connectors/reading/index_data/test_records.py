"""Equality of the compiled pass over records with the plain rules."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch, DispatchBuilder
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.reading.index_data.log_range_reader import read_index_data
from commitlake.connectors.reading.index_data.queue_entries import group_entries_by_queue
from commitlake.connectors.reading.snapshots import StoreRange, divide_segment, segment_ranges, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.boltmq.dialect import DIALECTS, ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.indexfile import TAGS_KEY_PREFIX, key_hash
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC, SCHEDULE_TOPIC
from tests.support.logs import closed_segment, messages, new_message, open_segment, records, write_store

SEGMENT = 1 << 16
ODD_PROPERTIES: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("TAGS", "TagA"), ("TAGS", "TagB")),
    (("TAGS", "订单"), ("KEYS", "鍵 ключ 😀"), ("UNIQ_KEY", "é")),
    (("KEYS", "  a   b "), ("UNIQ_KEY", "0" * 32), ("UNIQ_KEY", "1" * 32)),
    (("TAGS", "polygenelubricants"), ("KEYS", "polygenelubricants")),
    (("KEYS", "k" * 1000), ("DELAY", "3")),
    (("INNER_NUM", "12"), ("DELAY", "999")),
    (("DELAY", "+3"), ("INNER_NUM", "x")),
    (("DELAY", "-1"), ("TAGS", "T")),
    (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b,c"), ("INNER_MULTI_QUEUE_OFFSET", "7,8,9"), ("TAGS", "multi")),
    (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"), ("INNER_MULTI_QUEUE_OFFSET", "7")),
    (("INNER_MULTI_DISPATCH", "%LMQ%c,%LMQ%d,%LMQ%e"), ("INNER_MULTI_QUEUE_OFFSET", f"{'9' * 20},{'9' * 5000},-1")),
)


def facts_of(root: Path, chunk_rows: int = 1 << 10, partition: int = 1 << 30) -> list[IndexData]:
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    ranges = segment_ranges(store, take_snapshot([store]).ranges[store.broker])
    splits = [split for whole in ranges for split in divide_segment(whole, partition, 1 << 20)]
    return [facts for split in splits for facts in read_index_data(split, chunk_rows=chunk_rows)]


def parsed(data: Sequence[bytes]) -> list[Message]:
    found = [parse_message(record) for record in data]
    return [each[0] for each in found if each is not None]


def check(chunks: Sequence[IndexData], expected: Sequence[Message], dialect: Dialect = ROCKETMQ) -> None:
    """Compare every column with broker_lite's own rules."""
    builder = DispatchBuilder(StoreOptions(dialect=dialect))
    assert sum(facts.record_count for facts in chunks) == len(expected)
    dispatches = iter([builder.make_dispatch(message) for message in expected])
    flags = iter([message.sys_flag for message in expected])
    for facts in chunks:
        begin = 0
        for row in range(facts.record_count):
            wanted: Dispatch = next(dispatches)
            assert facts.topics[facts.topic[row]] == wanted.topic
            assert (facts.physical_offset[row], facts.size[row]) == (wanted.physical_offset, wanted.size)
            assert (facts.queue_id[row], facts.queue_offset[row]) == (wanted.queue_id, wanted.queue_offset)
            assert facts.store_timestamp[row] == wanted.store_timestamp
            assert facts.tags_code[row] == wanted.tags_code
            assert facts.queued_mask[row] == wanted.is_queued
            assert facts.sys_flag[row] == next(flags)
            hashes = [key_hash(wanted.topic, key) for key in wanted.index_keys]
            end = int(facts.key_ends[row])
            found = facts.key_hashes[begin:end].tolist()
            if facts.tags_hash[row] >= 0:
                found.append(int(facts.tags_hash[row]))
                assert wanted.index_keys[-1].startswith(TAGS_KEY_PREFIX)
            assert found == hashes
            begin = end


def unusual_messages(dialect: Dialect = ROCKETMQ) -> list[NewMessage]:
    long = "%RETRY%" + "g" * (140 if dialect.long_topic else 100)
    return [
        new_message(number, topic=topic, properties=properties, sys_flag=int(kind))
        for number, (topic, properties, kind) in enumerate(
            (topic, properties, kind)
            for topic in ("orders", SCHEDULE_TOPIC, BOLTMQ_SCHEDULE_TOPIC, "主题", long)
            for properties in ODD_PROPERTIES
            for kind in (TransactionType.NOT, TransactionType.COMMIT, TransactionType.ROLLBACK)
        )
    ]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("chunk_rows", [1, 7, 1 << 10])
def test_every_column_equals_the_brokers_own_value(tmp_path: Path, chunk_rows: int, dialect: Dialect) -> None:
    wanted = unusual_messages(dialect) + messages(300)
    write_store(tmp_path, [(0, closed_segment(wanted, 1 << 18, dialect=dialect))])
    check(facts_of(tmp_path, chunk_rows), parsed(records(wanted, dialect=dialect)), dialect)


def test_text_that_is_not_utf8_is_read_as_by_java(tmp_path: Path) -> None:
    data = records([new_message(properties=(("TAGS", "T__"), ("KEYS", "a b")))])
    (record,) = [data[0].replace(b"T__", b"T\xff_")]
    write_store(tmp_path, [(0, record.ljust(SEGMENT, b"\0"))])
    check(facts_of(tmp_path), parsed([record]))


def test_a_record_of_several_queues_has_an_entry_in_each(tmp_path: Path) -> None:
    wanted = [new_message(0, properties=ODD_PROPERTIES[9]), new_message(4, properties=ODD_PROPERTIES[10])]
    write_store(tmp_path, [(0, open_segment(wanted, SEGMENT))])
    (facts,) = facts_of(tmp_path)
    found = {(each.topic, each.queue_id): each.queue_offset.tolist() for each in group_entries_by_queue(facts)}
    assert found == {("orders", 0): [0, 0], ("%LMQ%a", 0): [7], ("%LMQ%b", 0): [8]}


def test_entries_are_grouped_by_queue_in_the_order_of_the_log(tmp_path: Path) -> None:
    wanted = [*messages(200), new_message(0, topic="rolled-back", sys_flag=int(TransactionType.ROLLBACK))]
    write_store(tmp_path, [(0, open_segment(wanted, 1 << 18))])
    (facts,) = facts_of(tmp_path)
    expected: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
    for message in parsed(records(wanted))[:200]:
        dispatch = DispatchBuilder(StoreOptions()).make_dispatch(message)
        entry = (message.queue_offset, message.physical_offset, message.size, dispatch.tags_code)
        expected.setdefault((message.topic, message.queue_id), []).append(entry)
    found = {
        (each.topic, each.queue_id): list(
            zip(
                each.queue_offset.tolist(),
                each.physical_offset.tolist(),
                each.size.tolist(),
                each.tags_code.tolist(),
                strict=True,
            )
        )
        for each in group_entries_by_queue(facts)
    }
    assert found == expected


def test_a_damaged_range_is_reported_between_the_records(tmp_path: Path) -> None:
    data = records(messages(50))
    begin = sum(map(len, data[:20]))
    broken = bytearray(b"".join(data).ljust(SEGMENT, b"\0"))
    broken[begin + 4] ^= 1
    write_store(tmp_path, [(0, bytes(broken))])
    (facts,) = facts_of(tmp_path)
    check([facts], parsed(data[:20] + data[21:]))
    assert [(bad.start, bad.end, bad.fault) for bad in facts.bad] == [(begin, begin + len(data[20]), Fault.MAGIC)]


def test_a_missing_segment_is_one_bad_range(tmp_path: Path) -> None:
    write_store(tmp_path, [(0, closed_segment(messages(5), SEGMENT)), (2 * SEGMENT, bytes(SEGMENT))])
    (store,) = find_stores(str(tmp_path), formats=COMMITLOGS)
    chunks = [f for split in segment_ranges(store, StoreRange(0, 2 * SEGMENT)) for f in read_index_data(split)]
    assert [(bad.start, bad.end, bad.fault) for facts in chunks for bad in facts.bad] == [
        (SEGMENT, 2 * SEGMENT, Fault.MISSING_SEGMENT)
    ]


def test_chunks_follow_one_another(tmp_path: Path) -> None:
    chance = random.Random(7)
    wanted = [dataclasses.replace(each, body=chance.randbytes(50)) for each in messages(300)]
    write_store(tmp_path, [(0, closed_segment(wanted, 1 << 18))])
    chunks = facts_of(tmp_path, 64, 1 << 14)
    assert chunks[0].start == 0
    assert all(before.end == after.start for before, after in pairwise(chunks))
    check(chunks, parsed(records(wanted)))


def test_records_in_very_many_light_queues_are_read_in_small_chunks(tmp_path: Path) -> None:
    names = [f"%LMQ%{number:x}" for number in range(2000)]
    lights = (("INNER_MULTI_DISPATCH", ",".join(names)), ("INNER_MULTI_QUEUE_OFFSET", ",".join(["0"] * len(names))))
    log = records([new_message(queue_id=0, properties=lights) for _ in range(600)])
    root = write_store(tmp_path / "light", [(0, b"".join(log))])
    chunks = facts_of(root, chunk_rows=1 << 14)
    assert sum(facts.record_count for facts in chunks) == 600
    assert max(facts.record_count for facts in chunks) < 400
    assert all(len(queues) == len(names) for facts in chunks for queues in facts.multi_dispatch.values())
