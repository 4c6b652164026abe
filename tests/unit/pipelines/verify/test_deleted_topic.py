"""A topic that was deleted and created again: its older records are still in the log, without entries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, Clock, message
from tests.support.store_damages import QUEUE, ROCKETMQ

TOPIC = "topic-1"


def verify(root: Path) -> StoreReport:
    (found,) = find_stores(str(root), "a", formats=COMMITLOGS)
    (report,) = verify_stores([found], VerifyOptions(partition_bytes=SEGMENT_BYTES // 2))
    return report


def write(root: Path, before: int, after: int, silent: tuple[str, int] | None = None) -> Path:
    """Write a store whose topic was deleted after some messages; a silent queue has had none since."""
    chance = random.Random(1)
    with MessageStore.open(root, OPTIONS, clock=Clock()) as store:
        for number in range(before):
            store.put(message(number, chance))
        store.delete_queues(TOPIC)
        for number in range(before, before + after):
            each = message(number, chance)
            if (each.topic, each.queue_id) != silent:
                store.put(each)
    return root


@pytest.mark.parametrize(("before", "after"), [(300, 100), (200, 400)])
def test_older_records_are_not_missing_from_the_new_queues(tmp_path: Path, before: int, after: int) -> None:
    report = verify(write(tmp_path / "store", before, after))
    assert report.findings.counts == {"log_queue_restarted": 3}
    assert report.records == before + after


def test_offsets_of_groups_are_compared_with_the_new_queue(tmp_path: Path) -> None:
    root = write(tmp_path / "store", 300, 100)
    (root / "config").mkdir(exist_ok=True)
    of_queue = [each.queue_offset for each in ROCKETMQ.messages(root) if (each.topic, each.queue_id) == QUEUE]
    end, old_end = of_queue[-1] + 1, max(of_queue) + 1
    offsets = f'{{"offsetTable":{{"topic-1@late":{{1:{end}}},"topic-1@beyond":{{1:{old_end}}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(offsets)
    assert end < old_end
    assert verify(root).findings.counts == {"log_queue_restarted": 3, "offset_beyond_queue": 1}


def test_a_damaged_entry_of_the_new_queue_is_found(tmp_path: Path) -> None:
    root = write(tmp_path / "store", 300, 100)
    wrong = ROCKETMQ.entry(root, 3)._replace(physical_offset=ROCKETMQ.entry(root, 4).physical_offset)
    ROCKETMQ.put_entry(root, 3, wrong)
    assert verify(root).findings.counts == {"log_queue_restarted": 3, "queue_wrong_offset": 1}


def test_a_topic_missing_from_topics_json_counts_as_deleted(tmp_path: Path) -> None:
    root = write(tmp_path / "store", 300, 0)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"topic-0":{},"topic-2":{},"rare":{}}}')
    assert verify(root).findings.counts == {"queue_deleted": 3}


@pytest.mark.parametrize("topics", ["", "{", '{"topicConfigTable":{"topic-0":{},"topic-1":{},"topic-2":{},"rare":{}}}'])
def test_a_queue_without_files_is_missing_unless_topics_json_excludes_it(tmp_path: Path, topics: str) -> None:
    root = write(tmp_path / "store", 300, 0)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(topics)
    assert verify(root).findings.counts == {"queue_missing": 3}


def test_a_queue_without_a_message_since_its_topic_was_created_again_is_deleted(tmp_path: Path) -> None:
    root = write(tmp_path / "store", 300, 100, QUEUE)
    assert verify(root).findings.counts == {"log_queue_restarted": 2, "queue_deleted": 1}
