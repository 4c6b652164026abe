"""The Spark source's reader returns a store in BoltMQ's dialect row for row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, DIALECTS, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK, NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.hypothesis_profiles import load
from tests.support.plain_rows import check_row, read_all
from tests.support.small_stores import STORED_MS, Clock

load()

OPTIONS = StoreOptions(segment_size_bytes=4096, consume_queue_file_size_bytes=400, index_slots=7, index_entries=24)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=30)
MESSAGES = st.builds(
    NewMessage,
    topic=st.sampled_from(["orders", "%RETRY%mail", "SCHEDULE_TOPIC_XXX", "t" * 127]),
    body=st.binary(max_size=100) | st.integers(0, 900).map(lambda size: b"x" * size),
    born_timestamp=st.integers(0, 4_000_000_000_000),
    born_host=st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65535)),
    queue_id=st.integers(0, 3),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    reconsume_times=st.integers(0, 20),
    properties=st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "city"]), TEXTS).map(
        lambda pairs: tuple(pairs.items())
    ),
)


@given(new=st.lists(MESSAGES, max_size=25), partition=st.integers(64, 8000), dialect=st.sampled_from(DIALECTS))
def test_stored_messages_read_back_equal_through_the_source(
    new: list[NewMessage], partition: int, dialect: Dialect, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    stored = []
    with MessageStore.open(root, replace(OPTIONS, dialect=dialect), clock=Clock(STORED_MS)) as broker:
        for message in [*new, replace(_LAST, body=b"123456789")]:  # whose CRC has the top bit
            found = broker.get_at(broker.put(message).physical_offset)
            assert found is not None
            stored.append(found)
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    rows = read_all(plan_splits(store, take_snapshot([store]).ranges["b"], partition), Mode.FAILFAST)
    assert [row["physical_offset"] for row in rows] == [found.physical_offset for found in stored]
    for row, found in zip(rows, stored, strict=True):
        assert found.dialect is dialect
        check_row(row, to_message_row(found, "b"), found.body)
    assert (rows[-1]["body_crc"], stored[-1].body_crc & CRC_MASK) == (0x4BF43926, 0x4BF43926)
    assert (stored[-1].body_crc < 0) is (dialect is BOLTMQ)


_LAST = NewMessage("orders", b"", STORED_MS, Host.of("127.0.0.1", 1), properties=(("TAGS", "TagA"),))
