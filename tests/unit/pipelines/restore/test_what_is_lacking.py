"""Records missing from the lake become fillers that a broker skips, with a note; all others keep their offsets."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.restore.log_rows import RestoreSelection
from commitlake.pipelines.restore.run import NOTES, RestoreResult
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import SpanKind
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import SEGMENT_BYTES, STEP_MS, STORED_MS, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.logs import closed_segment, messages, new_message, open_segment, write_store
from tests.support.restored_stores import messages_of, packs_of, segments, walked

Archive = Callable[..., Lake]
Restore = Callable[..., RestoreResult]

SIZE = 1 << 16


def notes(restored: RestoreResult) -> list[dict[str, Any]]:
    """Return the notes on differences from the broker's log."""
    return [json.loads(line) for line in (restored.out / NOTES).read_text().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of eleven segments."""
    return write_indexed_store(tmp_path / "store")


def test_damaged_records_become_fillers(store: Path, archive: Archive, restore: Restore) -> None:
    whole = messages_of(store, SEGMENT_BYTES)
    offsets = sorted(whole)
    path = store / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    for offset in (offsets[0], offsets[20], offsets[21]):  # the log's first record, and two that follow one another
        data[offset + 8] ^= 1
    path.write_bytes(data)
    restored = restore(archive(store))
    assert (restored.records, restored.lacking) == (597, 1)
    assert restored.log.start == offsets[1]
    assert notes(restored) == [{"what": "no record", "start": offsets[20], "end": offsets[22]}]
    found = messages_of(restored.out, SEGMENT_BYTES)
    assert found == {offset: whole[offset] for offset in offsets if offset not in (offsets[0], *offsets[20:22])}
    assert {name: data for name, data in segments(restored.out).items() if int(name)} == {
        name: data for name, data in segments(store).items() if int(name)
    }
    assert restored.rebuilt.totals.bad_ranges == 0


def test_a_missing_segment_becomes_one_that_brokers_skip(store: Path, archive: Archive, restore: Restore) -> None:
    whole = messages_of(store, SEGMENT_BYTES)
    (store / "commitlog" / segment_name(2 * SEGMENT_BYTES)).unlink()
    restored = restore(archive(store))
    assert [(note["start"], note["end"]) for note in notes(restored)] == [(2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES)]
    found = messages_of(restored.out, SEGMENT_BYTES)
    assert found == {offset: each for offset, each in whole.items() if offset // SEGMENT_BYTES != 2}
    assert restored.rebuilt.totals.bad_ranges == 0
    assert len(segments(restored.out)) == 11


def test_records_missing_at_a_segments_end_are_noted(store: Path, archive: Archive, restore: Restore) -> None:
    offsets = [offset for offset in messages_of(store, SEGMENT_BYTES) if offset < SEGMENT_BYTES]
    path = store / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    for offset in offsets[-3:]:
        data[offset + 8] ^= 1
    path.write_bytes(data)
    restored = restore(archive(store))
    assert [(note["start"], note["end"]) for note in notes(restored)] == [(offsets[-3], SEGMENT_BYTES)]
    assert restored.records == 597


def test_a_missing_body_is_an_error(store: Path, archive: Archive, restore: Restore) -> None:
    lake = archive(store)
    list(packs_of(lake))[3].unlink()
    with pytest.raises(UsageError, match=r"from physical offset \d+ on: pack .*Has it expired.*--on-missing skip"):
        restore(lake)


def test_records_without_bodies_can_be_left_out(store: Path, archive: Archive, restore: Restore) -> None:
    whole = messages_of(store, SEGMENT_BYTES)
    lake = archive(store)
    gone = list(packs_of(lake))[3]
    start, end, _ = gone.name.split("-")
    gone.unlink()
    restored = restore(lake, skips_missing_bodies=True)
    lost = {offset for offset in whole if int(start) <= offset < int(end) and whole[offset].body}
    assert restored.lost == restored.lost_bodies == len(lost) > 2
    found = messages_of(restored.out, SEGMENT_BYTES)
    assert found == {offset: each for offset, each in whole.items() if offset not in lost}
    told = [note for note in notes(restored) if note["what"] == "no body"]
    assert {note["start"] for note in told} == lost
    assert "expected a file in" in told[0]["reason"]


def test_only_damaged_bodies_of_a_pack_are_left_out(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    sent = [new_message(number, body=bytes([number]) * 100_000) for number in range(6)]
    root = write_store(tmp_path / "store", [(0, open_segment(sent, 1 << 20))])
    lake = archive(root, partition=1 << 20)
    (pack,) = packs_of(lake)
    data = bytearray(pack.read_bytes())
    data[-3] ^= 0xFF  # in the last frame, which has two bodies
    pack.write_bytes(data)
    with pytest.raises(UsageError, match="offset"):
        restore(lake, tmp_path / "failed", segment_size=1 << 20)
    restored = restore(lake, segment_size=1 << 20, skips_missing_bodies=True)
    assert (restored.records, restored.lost_bodies) == (4, 2)
    assert [found.body[0] for found in messages_of(restored.out, 1 << 20).values()] == [0, 1, 2, 3]


def test_a_lake_without_any_body_gives_no_store(store: Path, archive: Archive, restore: Restore) -> None:
    lake = archive(store)
    for pack in packs_of(lake):
        pack.unlink()
    restored = restore(lake, skips_missing_bodies=True)
    assert 0 < restored.records < 20  # those whose bodies are empty
    everything = RestoreSelection(
        "", 0, min(offset for offset, each in messages_of(restored.out, SEGMENT_BYTES).items())
    )
    with pytest.raises(UsageError, match=r"none of \d+ records could be restored"):
        restore(lake, restored.out.parent / "none", selection=everything, skips_missing_bodies=True)


@pytest.mark.parametrize(
    ("chosen", "first", "last"),
    [
        (RestoreSelection("", start_offset=40_000), None, None),
        (RestoreSelection("", end_offset=40_000), None, None),
        (RestoreSelection("a", 20_000, 50_000), None, None),
    ],
)
def test_a_range_of_offsets_is_restored_at_its_place(
    store: Path, archive: Archive, restore: Restore, chosen: RestoreSelection, first: None, last: None
) -> None:
    whole = messages_of(store, SEGMENT_BYTES)
    restored = restore(archive(store), selection=chosen)
    low, high = chosen.start_offset or 0, chosen.end_offset or 1 << 60
    assert messages_of(restored.out, SEGMENT_BYTES) == {o: each for o, each in whole.items() if low <= o < high}
    assert (restored.lacking, restored.lost) == (0, 0)
    assert min(int(name) for name in segments(restored.out)) == low // SEGMENT_BYTES * SEGMENT_BYTES


def moment(ms: int) -> datetime.datetime:
    """Return the time at these ms since 1970."""
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def test_a_range_of_times_has_the_records_from_its_first_to_its_last(
    store: Path, archive: Archive, restore: Restore
) -> None:
    whole = messages_of(store, SEGMENT_BYTES)
    times = [each.store_timestamp for each in whole.values()]
    start, end = times[100], times[400]
    restored = restore(archive(store), selection=RestoreSelection("", start=moment(start), end=moment(end)))
    wanted = {offset: each for offset, each in whole.items() if start <= each.store_timestamp < end}
    assert messages_of(restored.out, SEGMENT_BYTES) == wanted
    assert len(wanted) == 300
    assert restored.log.last_time == end - STEP_MS
    assert restored.lacking == 0


def test_a_range_without_records_is_an_error(store: Path, archive: Archive, restore: Restore) -> None:
    lake = archive(store)
    for chosen in (
        RestoreSelection("b"),
        RestoreSelection("a", end=moment(STORED_MS)),
        RestoreSelection("a", 1 << 40),
        RestoreSelection("it's"),
    ):
        with pytest.raises(UsageError, match="has no message of the broker"):
            restore(lake, selection=chosen)


def test_a_wrong_segment_size_is_an_error(store: Path, archive: Archive, restore: Restore) -> None:
    lake = archive(store)
    with pytest.raises(UsageError, match=r"at least 91 bytes, and an end within its segment.*mappedFileSizeCommitLog"):
        restore(lake, segment_size=SEGMENT_BYTES - 1000)


def test_two_logs_under_one_name_are_refused(tmp_path: Path, store: Path, archive: Archive, restore: Restore) -> None:
    other = write_store(tmp_path / "other", [(0, open_segment(messages(50, seed=9), SIZE))])
    archive(store)
    lake = archive(other, broker="b")
    _rename_broker(lake)
    with pytest.raises(UsageError, match="two logs under one name, or is damaged"):
        restore(lake, selection=RestoreSelection("a"), segment_size=SEGMENT_BYTES)


def _rename_broker(lake: Lake) -> None:
    """Rename one broker in the lake to the other."""
    DeltaTable(lake.uri("messages")).update(predicate="broker = 'b'", updates={"broker": "'a'"})


def test_every_stretch_has_a_filler_that_fits(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    # Forged: a hole of fewer bytes than a record has, in front of a record that has no room for its properties.
    sent = messages(40)
    data = bytearray(closed_segment(sent, SIZE))
    root = write_store(tmp_path / "store", [(0, bytes(data)), (SIZE, open_segment(messages(9), SIZE, SIZE))])
    lake = archive(root)
    whole = messages_of(root, SIZE)
    offsets = sorted(whole)
    _move(lake, offsets[10], offsets[10] + 10, whole[offsets[10]].size - 10)
    restored = restore(lake, segment_size=SIZE)
    assert restored.lost == 1
    found = messages_of(restored.out, SIZE)
    assert sorted(found) == [offset for offset in offsets if offset != offsets[10]]
    assert all(each.span.kind is not SpanKind.FAULT for each in walked(restored.out, SIZE))


def _move(lake: Lake, offset: int, to: int, size: int) -> None:
    """Move a row to another offset, with another size."""
    updates = {"physical_offset": str(to), "size": f"CAST({size} AS INT)"}
    DeltaTable(lake.uri("messages")).update(predicate=f"physical_offset = {offset}", updates=updates)


def test_a_jmq_store_in_the_lake_is_refused_before_anything_is_read(
    tmp_path: Path, archive: Archive, restore: Restore
) -> None:
    lake = archive(write_jmq_store(tmp_path / "store", 50))
    with pytest.raises(
        UsageError,
        match="the records of 'a' are from a JMQ store, and cannot be restored: expected RocketMQ's or BoltMQ's",
    ):
        restore(lake)
    assert not (tmp_path / "out").exists()
