"""The configuration of a store, recorded with each run and used by restore."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.rocketmq.topic_configs import read_config_document, read_topics
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.store_config import SETTING, TOPIC, read_store_config
from commitlake.jobs.restore.command import summary_lines
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import RestoreResult, restore_store
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import (
    GIVEN_UP_TOPIC,
    GROUPS_FILE,
    GROUPS_TABLE,
    SCHEDULE_TOPIC,
    TOPICS_FILE,
    TOPICS_TABLE,
)
from tests.support.indexed_stores import OPTIONS, STORED_MS, Clock
from tests.support.store_configs import record_config

LEVELS = "2s 7s"
FIFO = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "order": True, "perm": 6,
        "attributes": {"message.type": "FIFO"}, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}  # fmt: skip
BROKER = "a"


def write(root: Path, numbers: Iterable[int]) -> None:
    """Add messages in three of the four queues of `orders`, of two delay levels, and of a given up transaction."""
    with MessageStore.open(root, replace(OPTIONS, message_delay_level=LEVELS), clock=Clock()) as store:
        for number in numbers:
            store.put(message("orders", number % 3))
            store.put(message(SCHEDULE_TOPIC, number % 2, (("DELAY", str(1 + number % 2)),)))
        store.put(message(GIVEN_UP_TOPIC, 0))


def message(topic: str, queue_id: int, properties: tuple[tuple[str, str], ...] = ()) -> NewMessage:
    """Return a message."""
    return NewMessage(topic, b"body", 0, Host.of("127.0.0.1", 1), queue_id=queue_id, properties=properties)


def configure(root: Path, **topics: object) -> None:
    """Write topics.json and subscriptionGroup.json."""
    (root / "config").mkdir(exist_ok=True)
    (root / TOPICS_FILE).write_text(json.dumps({TOPICS_TABLE: topics}))
    groups = {"billing": {"groupName": "billing", "retryMaxTimes": 3}}
    (root / GROUPS_FILE).write_text(json.dumps({GROUPS_TABLE: groups}))


def archive(lake: Lake, root: Path) -> ArchiveWork:
    """Archive new messages, without the configuration."""
    work = find_archive_work(str(root), BROKER, lake)
    open_messages_for_append(lake)
    tasks = ArchiveTasks(work.splits(5000), lake, work.commit.run_id, "1")
    files = [row.data_file for row in tasks.run_task(0, tasks.parts) if row.table == "messages"]
    commit_run(lake, files, work.commit, work.previous_progress)
    return work


def next_work(lake: Lake, root: Path) -> ArchiveWork:
    """Plan another run."""
    return find_archive_work(str(root), BROKER, lake)


def restore(lake: Lake, out: Path, **options: object) -> RestoreResult:
    """Restore without options for the broker's settings."""
    return restore_store(lake, out, RestoreSelection(BROKER), **options)  # type: ignore[arg-type]


def at(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(STORED_MS / 1000 + seconds, datetime.UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with its configuration."""
    write(tmp_path / "store", range(60))
    configure(tmp_path / "store", orders=FIFO, empty={"topicName": "empty"})
    return tmp_path / "store"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake, not yet created."""
    return Lake(str(tmp_path / "lake"))


def test_a_restored_store_has_its_topics_groups_and_file_sizes(tmp_path: Path, root: Path, lake: Lake) -> None:
    record_config(lake, archive(lake, root))
    restored = restore(lake, tmp_path / "out")
    topics = read_topics(restored.out)[TOPICS_TABLE]
    assert topics["orders"] == FIFO
    assert set(topics) == {"orders", "empty", GIVEN_UP_TOPIC}
    assert read_config_document(restored.out, GROUPS_FILE, GROUPS_TABLE)[GROUPS_TABLE]["billing"]["retryMaxTimes"] == 3
    theirs, ours = ({p.relative_to(r): p.read_bytes() for p in (r / "consumequeue").rglob("0*") if p.is_file()}
                    for r in (root, restored.out))  # fmt: skip
    assert ours == theirs  # with the broker's own delays, and its size of files
    assert restored.has_config


def test_the_summary_names_the_settings_that_the_broker_needs(tmp_path: Path, root: Path, lake: Lake) -> None:
    compacted = {"topicName": "orders", "attributes": {"cleanup.policy": "COMPACTION"}}
    configure(root, orders=compacted, empty=compacted, odd=7, older={"attributes": None})
    record_config(lake, archive(lake, root))
    restored = restore(lake, tmp_path / "out")
    assert restored.compacted_topics == ("orders",)
    *_, policy, needed = summary_lines(restored)
    assert "cleanup.policy=COMPACTION (orders) from compaction/" in policy
    assert needed.startswith(
        "the broker needs mappedFileSizeConsumeQueue=320, maxHashSlotNum=50, maxIndexNum=200, "
        "messageDelayLevel=2s 7s 10s 30s 1m "
    )


def test_without_recorded_configuration_topics_are_made_from_the_log(tmp_path: Path, root: Path, lake: Lake) -> None:
    archive(lake, root)
    restored = restore(lake, tmp_path / "out", settings=RequestedSettings(index_slots=10, index_entries=20))
    topics = read_topics(restored.out)[TOPICS_TABLE]
    assert {topic: config["readQueueNums"] for topic, config in topics.items()} == {"orders": 3, GIVEN_UP_TOPIC: 1}
    assert not restored.has_config


def test_only_changes_are_recorded(root: Path, lake: Lake) -> None:
    work = archive(lake, root)
    first = record_config(lake, work, at(0))
    assert first > 5
    assert record_config(lake, work, at(1)) == 0
    configure(root, orders=FIFO | {"perm": 4})
    assert record_config(lake, next_work(lake, root), at(2)) == 2  # one changed, one deleted
    assert read_store_config(lake, BROKER, at(1)).values_of_kind(TOPIC)["orders"]["perm"] == 6
    assert set(read_store_config(lake, BROKER, at(1)).values_of_kind(TOPIC)) == {"orders", "empty"}
    assert read_store_config(lake, BROKER, at(2)).values_of_kind(TOPIC) == {"orders": FIFO | {"perm": 4}}
    assert read_store_config(lake, BROKER, at(-9)) == read_store_config(lake, BROKER, at(0))
    assert read_store_config(lake, "another").values == {}


def test_a_truncated_queue_file_does_not_decide_the_size_of_all(root: Path, lake: Lake) -> None:
    for path in sorted((root / "consumequeue" / "orders").rglob("0*"))[:1]:
        os.truncate(path / f"{0:020d}" if path.is_dir() else path, 20)
    record_config(lake, archive(lake, root))
    assert read_store_config(lake, BROKER).values_of_kind(SETTING)["queue_file_size_bytes"] == 320


@pytest.mark.parametrize("content", ["", '{"topicConfigTable":', "[]", '{"topicConfigTable":{"a":' + "9" * 5000])
def test_a_half_written_file_deletes_no_topic(root: Path, lake: Lake, content: str) -> None:
    record_config(lake, archive(lake, root), at(0))
    (root / TOPICS_FILE).write_text(content)
    assert record_config(lake, next_work(lake, root), at(1)) == 0
    assert set(read_store_config(lake, BROKER).values_of_kind(TOPIC)) == {"orders", "empty"}


def test_names_that_are_not_text_are_recorded(root: Path, lake: Lake) -> None:
    (root / TOPICS_FILE).write_text('{"topicConfigTable":{"\\ud800":{"a":"\\udfff"},7:{}}}')
    record_config(lake, archive(lake, root), at(0))
    assert set(read_store_config(lake, BROKER).values_of_kind(TOPIC)) == {"?", "7"}


def test_a_link_as_topics_json_is_not_followed_and_stops_no_archive(tmp_path: Path, root: Path, lake: Lake) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    (root / TOPICS_FILE).rename(elsewhere)
    (root / TOPICS_FILE).symlink_to(elsewhere)
    problems: list[str] = []
    record_config(lake, archive(lake, root), problems=problems)
    assert read_store_config(lake, BROKER).values_of_kind(TOPIC) == {}
    assert "the configuration in it is not archived" in problems[0]
