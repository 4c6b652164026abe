"""Recognition of brokers that enter TAGS, from the newest IndexFile with a readable record."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.reading.files.index_files import LocalStoreFiles
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings, index_has_tags
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.indexfile import Geometry, parse_header, serialize_header
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import OPTIONS, Clock, message

GEOMETRY = Geometry(OPTIONS.index_slots, OPTIONS.index_entries)
NO_TAGS = ("TAGS",)


def write(root: Path, *, tags: bool, count: int = 60, without: tuple[str, ...] = ()) -> Path:
    """Write a store whose broker does or does not enter tags, and whose messages lack some properties."""

    def less(whole: NewMessage) -> NewMessage:
        return replace(whole, properties=tuple(pair for pair in whole.properties if pair[0] not in without))

    chance = random.Random(1)
    with MessageStore.open(root, replace(OPTIONS, index_tags=tags), clock=Clock()) as store:
        for number in range(count):
            store.put(less(message(number, chance)))
    return root


def tags_found(root: Path) -> bool | None:
    return tags_in(root, sorted((root / "index").iterdir()))


def tags_in(root: Path, index_files: list[Path]) -> bool | None:
    stores = find_stores(str(root), formats=COMMITLOGS) if any((root / "commitlog").iterdir()) else []
    records = LogRecords(stores[0].segments if stores else (), ROCKETMQ)
    return index_has_tags(LocalStoreFiles(root), [f"index/{path.name}" for path in index_files], GEOMETRY, records)


@pytest.mark.parametrize("tags", [True, False])
def test_the_newest_file_shows_whether_tags_are_entered(tmp_path: Path, tags: bool) -> None:
    root = write(tmp_path / "store", tags=tags)
    assert tags_found(root) is tags
    (root / "checkpoint").unlink(missing_ok=True)
    (found,) = find_stores(str(root), formats=COMMITLOGS)
    assert find_settings(root, RequestedSettings(), ROCKETMQ, segments=found.segments).index_tags is tags


def test_a_file_of_two_records_is_not_enough_and_the_one_before_is_used(tmp_path: Path) -> None:
    root = write(tmp_path / "store", tags=False, count=120)
    oldest, *_, newest = sorted((root / "index").iterdir())
    data = newest.read_bytes()
    few = parse_header(data)._replace(index_count=3)
    newest.write_bytes(serialize_header(few) + data[len(serialize_header(few)) :])
    assert tags_in(root, [newest]) is None
    assert tags_in(root, [oldest, newest]) is False


def test_records_without_tags_give_no_answer(tmp_path: Path) -> None:
    assert tags_found(write(tmp_path / "store", tags=True, without=NO_TAGS)) is None


def test_damaged_or_missing_segments_give_no_answer(tmp_path: Path) -> None:
    root = write(tmp_path / "store", tags=True)
    for path in (root / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert tags_found(root) is None
    for path in (root / "commitlog").iterdir():
        path.unlink()
    assert tags_found(root) is None


def test_an_invalid_index_file_gives_no_answer(tmp_path: Path) -> None:
    root = write(tmp_path / "store", tags=True)
    for path in (root / "index").iterdir():
        path.write_bytes(path.read_bytes()[:30])
    assert tags_found(root) is None


def test_a_record_with_another_offset_is_ignored(tmp_path: Path) -> None:
    root = write(tmp_path / "store", tags=False)
    first = root / "commitlog" / segment_name(0)
    moved = first.with_name(segment_name(OPTIONS.segment_size_bytes * 8))
    for path in sorted((root / "commitlog").iterdir()):
        path.rename(moved) if path == first else path.unlink()
    assert tags_found(root) is None
