"""Equality of a journal's columns of facts with the plain rules."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.jmq.queue_entries import (
    lost_entry_mask,
    make_entries,
    to_binary_entries,
    written_entry_mask,
)
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.reading.index_data.log_range_reader import read_index_data
from commitlake.connectors.reading.index_data.queue_entries import group_entries_by_queue
from commitlake.connectors.reading.snapshots import divide_segment, segment_ranges, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage, parse_message
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry, serialize_entry
from commitlake.schemas.layouts.rocketmq.scan import Fault
from tests.support.journals import closed_file, messages, new_message, open_file, records, write_journal

FILE = 1 << 16


def facts_of(root: Path, chunk_rows: int = 1 << 12, partition: int = 1 << 30) -> list[IndexData]:
    (store,) = find_stores(str(root), formats=all_formats().select_only(JMQ))
    ranges = segment_ranges(store, take_snapshot([store]).ranges[store.broker])
    splits = [split for whole in ranges for split in divide_segment(whole, partition, 1 << 20)]
    return [facts for split in splits for facts in read_index_data(split, chunk_rows=chunk_rows)]


def parsed(wanted: list[NewJournalMessage]) -> list[JournalMessage]:
    found = [parse_message(record) for record in records(wanted)]
    return [each[0] for each in found if each is not None]


def rows(chunks: list[IndexData]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for facts in chunks:
        assert facts.receive_timestamp is not None
        assert facts.queued_mask.all()
        columns = (facts.physical_offset, facts.size, facts.queue_id, facts.queue_offset, facts.store_timestamp)
        names = [facts.topics[code] for code in facts.topic.tolist()]
        found += zip(names, *(column.tolist() for column in columns), facts.receive_timestamp.tolist(), strict=True)
    return found


@pytest.mark.parametrize("chunk_rows", [1, 7, 1 << 12])
def test_every_column_equals_the_records_value(tmp_path: Path, chunk_rows: int) -> None:
    wanted = [*messages(300), new_message(300, topic="主题"), new_message(301, topic="t" * 255)]
    write_journal(tmp_path, [(0, open_file(wanted, 1 << 18))])
    chunks = facts_of(tmp_path, chunk_rows)
    assert rows(chunks) == [
        (each.topic, each.journal_offset, each.size, each.queue_id, each.queue_offset, each.store_timestamp,
         each.receive_timestamp)
        for each in parsed(wanted)
    ]  # fmt: skip
    assert all(before.end == after.start for before, after in pairwise(chunks))
    assert max(facts.record_count for facts in chunks) <= chunk_rows


def test_thousands_of_long_topics_fit(tmp_path: Path) -> None:
    wanted = [new_message(number, topic=f"{number:0255d}", body=b"", properties=()) for number in range(6000)]
    write_journal(tmp_path, [(0, open_file(wanted, 1 << 22))])
    chunks = facts_of(tmp_path, 1 << 18)
    assert len(chunks) > 1
    assert [row[0] for row in rows(chunks)] == [message.topic for message in wanted]


def test_a_damaged_body_is_reported_between_the_records(tmp_path: Path) -> None:
    data = bytearray(closed_file(messages(50), FILE))
    begin = sum(map(len, records(messages(20))))
    data[begin + 62] ^= 1
    write_journal(tmp_path, [(0, bytes(data)), (FILE, bytes(FILE))])
    chunks = facts_of(tmp_path)
    size = len(records(messages(21))[-1])
    assert [(bad.start, bad.end, bad.fault) for facts in chunks for bad in facts.bad] == [
        (begin, begin + size, Fault.BODY_CRC)
    ]
    assert sum(facts.record_count for facts in chunks) == 49


def test_a_delay_at_its_limit_gives_no_time(tmp_path: Path) -> None:
    far = new_message(1)
    data = bytearray(records([new_message(0), far])[0] + records([new_message(0), far])[1])
    at = len(records([new_message(0)])[0])
    data[at + 51 : at + 55] = (0x7FFFFFFF).to_bytes(4)
    write_journal(tmp_path, [(0, bytes(data).ljust(FILE, b"\0"))])
    (facts,) = facts_of(tmp_path)
    assert facts.is_dated is not None
    assert facts.is_dated.tolist() == [True, False]


def test_entries_equal_those_of_the_plain_rules(tmp_path: Path) -> None:
    wanted = messages(100)
    write_journal(tmp_path, [(0, open_file(wanted, FILE))])
    (facts,) = facts_of(tmp_path)
    found = {(each.topic, each.queue_id): to_binary_entries(each).tobytes() for each in group_entries_by_queue(facts)}
    expected: dict[tuple[str, int], bytes] = {}
    for each in parsed(wanted):
        queue = each.topic, each.queue_id
        expected[queue] = expected.get(queue, b"") + serialize_entry(JmqQueueEntry(each.journal_offset, each.size))
    assert found == expected


def test_an_entry_is_recognised_by_its_crc() -> None:
    entries = make_entries(np.array([5, 7, 9]), np.array([100, 0, 100]))
    assert written_entry_mask(entries).tolist() == [True, True, True]
    assert lost_entry_mask(entries).tolist() == [False, True, False]
    entries["flag"][0] = 1
    assert written_entry_mask(entries).tolist() == [False, True, True]
    assert not written_entry_mask(np.zeros(3, entries.dtype)).any()
    assert not lost_entry_mask(np.zeros(3, entries.dtype)).any()
