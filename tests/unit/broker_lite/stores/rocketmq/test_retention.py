"""Deletion of old files by time and by free disk space, and refusals on a full disk."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.engine.options import RetentionOptions
from commitlake.broker_lite.stores.engine.retention import Retention, disk_used_percent
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from tests.support.message_stores import SMALL, fill
from tests.support.small_stores import all_messages

NOW = time.time()
OLD = NOW - 73 * 3600
HOUR = time.localtime(NOW).tm_hour
OTHER_HOUR = (HOUR + 12) % 24


def retention(store: MessageStore, used: int = 10, **changes: object) -> Retention:
    """Return the retention rule for a disk with this usage."""
    options = replace(RetentionOptions(delete_hours=(HOUR,)), **changes)  # type: ignore[arg-type]
    files = store._files
    return Retention(store.path, files.log.files, files.delete_expired, options, lambda _: used)


def segments(store: MessageStore) -> list[Path]:
    """Return the log's files."""
    return sorted((store.path / "commitlog").iterdir())


def age(store: MessageStore, count: int) -> None:
    """Make the first segments old."""
    for segment in segments(store)[:count]:
        os.utime(segment, (OLD, OLD))


def test_old_segments_are_deleted_with_their_queue_and_index_files(store: MessageStore, root: Path) -> None:
    fill(store, 120)
    before = all_messages(store)
    age(store, 3)
    assert retention(store).delete_expired_files(NOW) == 3
    assert store.min_physical_offset == 3 * SMALL.segment_size_bytes
    for (topic, queue_id), messages in all_messages(store).items():
        kept = [one for one in before[topic, queue_id] if one.physical_offset >= store.min_physical_offset]
        assert messages == kept
        assert store.min_offset(topic, queue_id) == kept[0].queue_offset > 0
    assert store.get_by_key("orders", "order-0") == []
    assert [one.queue_offset for one in store.get_by_key("orders", "order-119")] == [59]
    first_queue_file = min((root / "consumequeue" / "orders" / "0").iterdir())
    assert int(first_queue_file.name) > 0
    store.flush()
    store.close()
    with MessageStore.open(root, SMALL) as again:
        assert again.min_physical_offset == 3 * SMALL.segment_size_bytes
        fill(again, 1, start=120)
        assert again.max_offset("orders", 0) == 61


@pytest.mark.parametrize(
    ("used", "changes", "gone"),
    [
        (10, {"delete_hours": (OTHER_HOUR,)}, 0),  # not the hour
        (75, {"delete_hours": (OTHER_HOUR,)}, 0),
        (76, {"delete_hours": (OTHER_HOUR,)}, 3),  # on a full disk, the hour does not matter
        (10, {"file_reserved_hours": 100}, 0),  # not old enough
        (85, {"file_reserved_hours": 100}, 0),
        (86, {"file_reserved_hours": 100, "delete_batch": 2}, 2),  # on a fuller disk, the age does not matter
        (10, {"delete_batch": 1}, 1),
    ],
)  # fmt: skip
def test_segments_are_deleted_by_hour_age_and_disk_usage(
    store: MessageStore, used: int, changes: dict[str, object], gone: int
) -> None:
    fill(store, 120)
    age(store, 3)
    assert retention(store, used, **changes).delete_expired_files(NOW) == gone


def test_the_last_segment_is_kept(store: MessageStore) -> None:
    assert retention(store, 99).delete_expired_files(NOW) == 0
    fill(store, 30)
    count = len(segments(store))
    assert retention(store, 99, delete_batch=1000).delete_expired_files(NOW) == count - 1
    fill(store, 30, start=30)
    assert store.get_by_key("orders", "order-59")


def test_a_disk_is_full_above_its_limit(store: MessageStore) -> None:
    assert not retention(store, 90).is_disk_full
    assert retention(store, 91).is_disk_full
    assert 0 < disk_used_percent(store.path) <= 100


@pytest.mark.parametrize("changes", [{"file_reserved_hours": -1}, {"delete_hours": (24,)}, {"warning_percent": 101}])
def test_invalid_options_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="expected"):
        RetentionOptions(**changes)  # type: ignore[arg-type]
