"""The compiled split of properties agrees with the plain parser."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG_PART_COUNT
from commitlake.connectors.reading.decoding.columns import DecodedBatch
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.read_request import Filters
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import (
    first_value,
    is_utf8,
    parse_priority,
    parse_properties,
    split_keys,
)
from tests.support.hypothesis_profiles import load

load()

PROPERTY_COLUMNS = frozenset({"unique_key", "keys", "tags", "priority", "properties"})
HOST = Host.of("127.0.0.1", 10911)
RECORD = serialize_message(
    NewMessage("t", b"", 0, HOST), queue_offset=0, physical_offset=0, store_timestamp=0, store_host=HOST
)
PIECES = [
    b"\x01", b"\x02", b"k", b"KEYS", b"TAGS", b"UNIQ_KEY", b"_SYS_MSG_PRIORITY_", b"7", b"v w", b" ", b"\x00", b"\xff",
    "ü".encode(), b"x" * 70,
]  # fmt: skip


def decode(properties: list[bytes]) -> list[DecodedBatch]:
    """Decode records with these properties, in as many batches as needed."""
    ends = np.cumsum([0, *map(len, properties)])
    # A copy that can be written, as a reader's buffer; the kernel would be compiled once more for another one.
    window = np.frombuffer(RECORD + b"".join(properties) + bytes(PADDING), np.uint8).copy()
    parts = np.zeros((COMMITLOG_PART_COUNT, len(properties)), np.int64)
    parts[record_walk.PROPERTIES] = len(RECORD) + ends[:-1]
    parts[record_walk.PROPERTIES_LENGTH] = np.diff(ends)
    decoder, batches, done = CommitLogDecoder(PROPERTY_COLUMNS, "b", Filters()), [], 0
    while done < len(properties):
        batches.append(decoder.decode_batch(window, 0, parts[:, done:]))
        done += batches[-1].row_count
    return batches


def check(properties: list[bytes]) -> None:
    """Compare every column with the plain parser's value."""
    batches = decode(properties)
    bad = [row for row, data in enumerate(properties) if not is_utf8(data)]
    first, found = 0, []
    for batch in batches:
        found += [first + row for row in batch.rows_with_invalid_text().tolist()]
        first += batch.row_count
    assert found == bad
    pairs = [parse_properties(data) if is_utf8(data) else [] for data in properties]
    last = [dict(of_row) for of_row in pairs]
    columns = {}
    for name in PROPERTY_COLUMNS:
        columns[name] = pa.chunked_array([batch.column(name) for batch in batches])
        columns[name].validate(full=True)
    assert [dict(value) for value in columns["properties"].to_pylist()] == last
    assert columns["unique_key"].to_pylist() == [first_value(of_row, "UNIQ_KEY") for of_row in pairs]
    assert columns["tags"].to_pylist() == [of_row.get("TAGS") for of_row in last]
    assert columns["priority"].to_pylist() == [parse_priority(of_row.get("_SYS_MSG_PRIORITY_")) for of_row in last]
    keys = [of_row.get("KEYS") for of_row in last]
    assert columns["keys"].to_pylist() == [None if value is None else split_keys(value) for value in keys]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), min_size=1, max_size=5))
def test_properties_are_split_as_by_the_plain_parser(properties: list[bytes]) -> None:
    check(properties)


@pytest.mark.parametrize("end", range(120, 140))
def test_entries_that_end_around_a_block_are_whole(end: int) -> None:
    check([b"k\x01" + b"v" * (end - 5) + b"\x02x\x01y", b"a\x01b\x02" * 40, b"KEYS\x01" + b"k " * end])


def test_records_with_more_properties_than_a_batch_holds_make_several_batches() -> None:
    most = b"".join(b"%c\x01v\x02" % (97 + number % 26) for number in range(8191))
    many = b"".join(b"%x\x01v\x02" % number for number in range(4000))
    check([most, many] * 40)
    assert len(decode([most, many] * 40)) > 1


def test_different_names_in_every_record_do_not_fill_the_memory() -> None:
    properties = [b"".join(b"%x-%x\x01v\x02" % (record, number) for number in range(2000)) for record in range(60)]
    check(properties)
