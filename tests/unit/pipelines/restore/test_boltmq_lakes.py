"""A lake of a BoltMQ store gives a store of RocketMQ's: the same messages at the same offsets, in its dialect."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.jobs.restore.command import summary_lines
from commitlake.pipelines.restore.config_files import parse_offsets
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ
from commitlake.schemas.layouts.rocketmq.commitlog import convert_to_dialect
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, message, write_indexed_store
from tests.support.restored_stores import Archive, Restore, messages_of, segments

BOLTMQ_OPTIONS = replace(OPTIONS, dialect=BOLTMQ)


def test_records_are_restored_in_rocketmqs_dialect(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    root = write_indexed_store(tmp_path / "store", 100, options=BOLTMQ_OPTIONS)
    restored = restore(archive(root))
    assert not restored.boltmq_delays
    logs, sent = segments(restored.out), segments(root)
    found = messages_of(root, SEGMENT_BYTES)
    assert len(found) == restored.records == 100
    for offset, record in found.items():
        name, at = f"{offset - offset % SEGMENT_BYTES:020d}", offset % SEGMENT_BYTES
        assert logs[name][at : at + record.size] == convert_to_dialect(sent[name][at : at + record.size], ROCKETMQ)


def test_messages_waiting_in_boltmqs_schedule_topic_are_reported(
    tmp_path: Path, archive: Archive, restore: Restore
) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, BOLTMQ_OPTIONS) as store:
        parked = replace(message(1, random.Random(1)), topic=BOLTMQ.schedule_topic, properties=(("DELAY", "3"),))
        store.put(parked)
    restored = restore(archive(root))
    assert restored.boltmq_delays
    assert any("delivers nothing from SCHEDULE_TOPIC_XXX" in line for line in summary_lines(restored))


def test_offset_files_of_boltmq_are_used() -> None:
    assert parse_offsets(b'{"offsets":{"orders@mail":{"0":12,"1":9}}}', "file") == {"orders@mail": {0: 12, 1: 9}}
