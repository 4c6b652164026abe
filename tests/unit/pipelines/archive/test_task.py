"""A task of an archive run: every record in a data file, every body in a pack, and correct statistics of files."""

from __future__ import annotations

import dataclasses
import datetime
import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.record_rules import to_message_row
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow, RefusalCounts
from commitlake.connectors.lake.packs.frames import BodyRef
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import FoundRecord, walk_store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.body_packs import NewBodyPack
from commitlake.pipelines.archive.row_buffer import RowBuffer
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.quality.profile_columns import parse_profile
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.tables.archive_runs import GAPS, QUARANTINE
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.logs import BROKER_HOST, closed_segment, messages, new_message, open_segment, write_store
from tests.support.packs import folder_store
from tests.support.sending_runner import SendingRunner

SIZE = 1 << 20
MIDNIGHT_MS = 1_700_006_400_000
COLUMNS = [name for name in MESSAGES.names if name not in ("store_date", "body_ref")]
Row = dict[str, Any]


def tasks_of(root: Path, lake: Path, partition: int = SIZE, run_id: str = "run-1") -> ArchiveTasks:
    """Return the tasks for the whole store."""
    (store,) = find_stores(str(root), "broker/../a", formats=COMMITLOGS)
    splits = plan_splits(store, take_snapshot([store]).ranges[store.broker], partition)
    return ArchiveTasks(splits, Lake(str(lake)), run_id, "1.2")


def run_all(tasks: ArchiveTasks) -> list[ManifestRow]:
    """Run all tasks, and return their manifest."""
    return [
        row for number in range(len(tasks.parts)) for row in tasks.run_task(number, tasks.parts[number : number + 1])
    ]


def files_of(manifest: list[ManifestRow]) -> list[ManifestRow]:
    """Return the manifest's data files."""
    return [row for row in manifest if row.table == "messages"]


def refused(manifest: list[ManifestRow]) -> tuple[int, int]:
    """Return the numbers of rows for `quarantine` and for `gaps`."""
    counts = [count for row in manifest for count in row.refusal_counts.values()]
    return sum(count.quarantined_row_count for count in counts), sum(count.missing_ranges for count in counts)


def rows_of(lake: Path, manifest: list[ManifestRow]) -> list[Row]:
    """Return the messages that the manifest's files hold, in the files' order."""
    return [
        row
        for file in files_of(manifest)
        for row in pq.ParquetFile(lake / "messages" / file.path).read().to_pylist(maps_as_pydicts="strict")
    ]


def plain(row: Row) -> Row:
    """Return a record as the row that the plain reader gives."""
    values = {name: row[name] for name in COLUMNS}
    for name in ("born_timestamp", "store_timestamp"):
        values[name] = values[name] and round(values[name].timestamp() * 1000)
    return values


def records_of(root: Path) -> list[FoundRecord]:
    """Return the store's records, read by the plain reader."""
    (store,) = find_stores(str(root), "broker/../a", formats=COMMITLOGS)
    return [found for found in walk_store(store, SIZE) if found.message is not None]


def check(root: Path, lake: Path, manifest: list[ManifestRow]) -> None:
    """Compare lake and store, bodies included."""
    rows = sorted(rows_of(lake, manifest), key=lambda row: row["physical_offset"])
    expected = records_of(root)
    store = folder_store(lake / "bodies")
    assert len(rows) == len(expected) == sum(row.rows for row in files_of(manifest))
    for row, found in zip(rows, expected, strict=True):
        assert found.message is not None
        assert plain(row) == {name: to_message_row(found.message, "broker/../a")[name] for name in COLUMNS}
        assert read_body(store, BodyRef(**row["body_ref"]), row["body_crc"]) == found.message.body


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("partition", [pytest.param(2000, marks=pytest.mark.long("500 packs")), 50_000, SIZE])
def test_every_record_and_every_body_is_in_the_lake(tmp_path: Path, partition: int) -> None:
    sent = [*messages(700), new_message(1, body=b""), new_message(2, body=b"x" * 300_000)]
    root = write_store(
        tmp_path / "store", [(0, closed_segment(sent, SIZE)), (SIZE, open_segment(messages(300), SIZE, SIZE))]
    )
    manifest = run_all(tasks_of(root, tmp_path, partition))
    check(root, tmp_path, manifest)
    assert refused(manifest) == (0, 0)
    assert sum(row.pack_bytes for row in manifest) == sum(
        path.stat().st_size for path in (tmp_path / "bodies").rglob("*.zst")
    )


def test_rows_of_a_file_are_sorted_by_topic_queue_and_offset(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(500), SIZE))])
    places = [
        (row["topic"], row["queue_id"], row["queue_offset"])
        for row in rows_of(tmp_path, run_all(tasks_of(root, tmp_path)))
    ]
    assert places == sorted(places)
    assert len({topic for topic, _, _ in places}) > 1


def at(store_timestamps: list[int]) -> bytes:
    """Return a segment of records with these store times."""
    data = b""
    for number, time in enumerate(store_timestamps):
        message = NewMessage("t", b"body %d" % number, 0, BROKER_HOST)
        data += serialize_message(
            message, queue_offset=number, physical_offset=len(data), store_timestamp=time, store_host=BROKER_HOST
        )
    return data.ljust(SIZE, b"\0")


def test_each_date_has_its_own_file_and_pack(tmp_path: Path) -> None:
    times = [MIDNIGHT_MS - 2, MIDNIGHT_MS + 1, MIDNIGHT_MS - 1, MIDNIGHT_MS, 1 << 60, -5]
    root = write_store(tmp_path / "store", [(0, at(times))])
    manifest = run_all(tasks_of(root, tmp_path))
    dates = {row.store_date: row.rows for row in files_of(manifest)}
    day = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC).date()
    assert dates == {None: 2, (day - datetime.timedelta(days=1)).isoformat(): 2, day.isoformat(): 2}
    assert refused(manifest) == (2, 0)
    for row in rows_of(tmp_path, manifest):
        (number,) = re.findall(rb"\d+", read_body(folder_store(tmp_path / "bodies"), BodyRef(**row["body_ref"])))
        assert int(number) == row["queue_offset"]
    for file in files_of(manifest):
        stored = rows_of(tmp_path, [file])
        folder = f"store_date={file.store_date or '__HIVE_DEFAULT_PARTITION__'}/"
        assert file.path.startswith(folder)
        assert all(row["body_ref"]["pack"].startswith(folder) for row in stored)


def test_bad_ranges_and_marked_messages_are_counted_and_intact_ones_kept(tmp_path: Path) -> None:
    data = bytearray(open_segment(messages(100), SIZE))
    data[2000] ^= 0xFF
    data = data.replace(b"Tag1", b"Ta\xff1", 3)
    root = write_store(tmp_path / "store", [(0, bytes(data))])
    manifest = run_all(tasks_of(root, tmp_path, 4000))
    rows = rows_of(tmp_path, manifest)
    assert len(rows) == len(records_of(root)) == 99
    assert refused(manifest) == (4, 0)
    assert sum("Ta\ufffd1" in str(row["properties"]) for row in rows) == 3


def test_a_range_without_a_message_writes_no_file(tmp_path: Path) -> None:
    root = write_store(
        tmp_path / "store",
        [
            (0, closed_segment(messages(20), SIZE)),
            (SIZE, b"\xaa" * SIZE),
            (2 * SIZE, open_segment(messages(5), SIZE, 2 * SIZE)),
        ],
    )
    tasks = tasks_of(root, tmp_path)
    manifest = list(tasks.run_task(1, tasks.parts[1:2]))
    assert [row.table for row in manifest] == ["quarantine", ""]
    assert manifest[-1].refusal_counts == {"broker/../a": RefusalCounts(bad_ranges=1)}
    assert not (tmp_path / "messages").exists()
    assert not (tmp_path / "bodies").exists()


def without_packs(rows: list[Row]) -> list[Row]:
    return [{**row, "body_ref": {**row["body_ref"], "pack": None}} for row in rows]


@pytest.mark.parametrize(
    "second", ["run-1", pytest.param("run-2", marks=pytest.mark.long("a task is repeated by its own run each time"))]
)
def test_a_repeated_range_leaves_the_files_of_the_first_attempt_unchanged(tmp_path: Path, second: str) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(400), SIZE))])
    one = run_all(tasks_of(root, tmp_path, 20_000))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = run_all(tasks_of(root, tmp_path, 20_000, second))
    assert without_packs(rows_of(tmp_path, one)) == without_packs(rows_of(tmp_path, other))
    check(root, tmp_path, one)
    check(root, tmp_path, other)
    assert not {row.path for row in files_of(one)} & {row.path for row in files_of(other)}
    assert before.items() <= {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}.items()
    packs = {row["body_ref"]["pack"] for row in rows_of(tmp_path, one)}
    assert not packs & {row["body_ref"]["pack"] for row in rows_of(tmp_path, other)}


def test_a_segment_that_is_cut_between_plan_and_read_fails_the_task(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(400), SIZE))])
    tasks = tasks_of(root, tmp_path, 20_000)
    os.truncate(root / "commitlog" / f"{0:020}", 70_000)
    with pytest.raises(
        StoreError, match=r"shorter than the \d+ bytes that it had when this run began.*run the command again"
    ):
        run_all(tasks)
    check(root, tmp_path, run_all(tasks_of(root, tmp_path, 20_000)))


def test_statistics_match_the_rows_of_the_file(tmp_path: Path) -> None:
    long_topic = "x" * 40
    sent = [*messages(50), new_message(3, topic=long_topic)]
    root = write_store(tmp_path / "store", [(0, open_segment(sent, SIZE))])
    (file,) = files_of(run_all(tasks_of(root, tmp_path)))
    rows, found = rows_of(tmp_path, [file]), json.loads(file.statistics)
    assert found["numRecords"] == file.rows == len(rows)
    for name in ("physical_offset", "queue_offset", "size"):
        values = [row[name] for row in rows]
        assert (found["minValues"][name], found["maxValues"][name]) == (min(values), max(values))
    assert found["minValues"]["topic"] == "topic-0"
    assert found["maxValues"]["topic"] == long_topic[:32] + "\U0010ffff"
    assert found["maxValues"]["topic"] > long_topic
    assert found["nullCount"]["priority"] == len(rows)
    assert found["nullCount"]["unique_key"] == len(rows)
    assert "properties" not in found["nullCount"]
    times = [row["store_timestamp"] for row in rows]
    assert found["minValues"]["store_timestamp"] == min(times).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert file.size == (tmp_path / "messages" / file.path).stat().st_size


def test_files_have_the_tables_columns_and_types(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(5), SIZE))])
    (file,) = files_of(run_all(tasks_of(root, tmp_path)))
    schema = pq.ParquetFile(tmp_path / "messages" / file.path).schema_arrow
    assert schema.names == [name for name in MESSAGES.names if name != "store_date"]
    assert schema.field("store_timestamp").type == pa.timestamp("us", "UTC")
    assert pa.types.is_map(schema.field("properties").type)
    assert not any(path.name.endswith(".tmp") for path in tmp_path.rglob("*"))


def test_a_task_returns_the_profile_of_its_rows(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(300), SIZE))])
    manifest = run_all(tasks_of(root, tmp_path, 20_000))
    profile = merge_profiles([parse_profile(row.profile) for row in manifest if row.profile])
    assert sum(profile.column("messages").to_pylist()) == 300
    assert sum(profile.column("bytes").to_pylist()) == sum(row["size"] for row in rows_of(tmp_path, files_of(manifest)))
    unasked = dataclasses.replace(tasks_of(root, tmp_path), profiled=False)
    assert [row.profile for row in run_all(unasked)] == [None, None, None]


def test_ranges_of_one_task_share_a_file_until_it_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(1000), SIZE))])
    tasks = tasks_of(root, tmp_path, 15_000)
    manifest = list(tasks.run_task(0, tasks.parts))
    assert len(files_of(manifest)) == 1
    check(root, tmp_path, manifest)
    packs = len(list((tmp_path / "bodies").rglob("*.zst")))
    assert packs == len(tasks.parts) > 10
    monkeypatch.setattr("commitlake.pipelines.archive.row_buffer.PART_BYTES", 50_000)
    manifest = list(tasks_of(root, tmp_path, 15_000, "run-2").run_task(0, tasks.parts))
    assert len(files_of(manifest)) > 3
    check(root, tmp_path, manifest)
    assert len(list((tmp_path / "bodies").rglob("*.zst"))) == 2 * packs


def pack_ranges(lake: Path) -> list[str]:
    """Return the ranges in the names of all packs, in order."""
    return sorted(path.name.rpartition("-")[0] for path in (lake / "bodies").rglob("*.zst"))


def test_a_task_divides_its_part_into_packs(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", [(0, open_segment(messages(1000), SIZE))])
    list(tasks_of(root, tmp_path / "planned", 15_000).run_all(HERE))
    undivided = tasks_of(root, tmp_path / "divided")
    assert len(undivided.parts) == 1
    manifest = list(dataclasses.replace(undivided, pack_bytes=15_000).run_all(HERE))
    check(root, tmp_path / "divided", manifest)
    assert len(pack_ranges(tmp_path / "divided")) > 10
    assert pack_ranges(tmp_path / "divided") == pack_ranges(tmp_path / "planned")


def test_small_neighbours_share_a_pack_and_hold_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [(number * 4000, closed_segment(messages(3), 4000, number * 4000)) for number in range(30)]
    del segments[12]  # a gap does not end a pack
    root = write_store(tmp_path / "store", segments)
    tasks = dataclasses.replace(tasks_of(root, tmp_path, 4000), pack_bytes=40_000)
    held: list[int] = []
    add = RowBuffer.add_rows

    def measured(waiting: RowBuffer, tables: list[pa.Table], packs: Sequence[NewBodyPack]) -> Iterator[ManifestRow]:
        yield from add(waiting, tables, packs)
        held.append(sum(table.get_total_buffer_size() for table in waiting._tables))

    monkeypatch.setattr(RowBuffer, "add_rows", measured)
    manifest = list(tasks.run_task(0, tasks.parts))
    check(root, tmp_path, manifest)
    assert pack_ranges(tmp_path) == [f"{start:020}-{start + 40_000:020}" for start in (0, 40_000, 80_000)]
    assert len(held) == 3
    assert held[-1] < 1 << 20  # the buffers of a decoder have some MiB


def test_the_last_tasks_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.pipelines.archive.task.MIN_PART_BYTES", 15_000)
    root = write_store(tmp_path / "store", [(0, open_segment(messages(1000), SIZE))])
    tasks = dataclasses.replace(tasks_of(root, tmp_path), pack_bytes=7500)
    runner = SendingRunner()
    check(root, tmp_path, list(tasks.run_all(runner)))
    assert len(tasks.parts) == 1
    assert len(runner.sent) == -(-tasks.parts[0].size // 15_000)


def test_a_task_receives_its_own_parts_only(tmp_path: Path) -> None:
    segments = [(number * 4000, closed_segment(messages(3), 4000, number * 4000)) for number in range(50)]
    root = write_store(tmp_path / "store", segments)
    runner = SendingRunner()
    check(root, tmp_path, list(tasks_of(root, tmp_path, 4000).run_all(runner)))
    assert len(runner.sent) > 1
    names = [sum(segment_name(number * 4000).encode() in data for number in range(50)) for data in runner.sent]
    assert sum(names) == 50


def test_a_range_of_many_dates_has_a_file_for_each_and_few_packs(tmp_path: Path) -> None:
    times = [MIDNIGHT_MS + 86_400_000 * number for number in range(100)]
    root = write_store(tmp_path / "store", [(0, at(times))])
    manifest = run_all(tasks_of(root, tmp_path))
    assert len({file.store_date for file in files_of(manifest)}) == 100
    packs = [path.parent.parent.name for path in (tmp_path / "bodies").rglob("*.zst")]
    assert len(packs) == 17
    assert "store_date=__HIVE_DEFAULT_PARTITION__" in packs
    check(root, tmp_path, manifest)


def test_too_many_rows_for_a_file_are_divided_among_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.pipelines.archive.row_buffer.PART_BYTES", 50_000)
    root = write_store(tmp_path / "store", [(0, open_segment(messages(1500), SIZE))])
    manifest = run_all(tasks_of(root, tmp_path))
    files = files_of(manifest)
    assert len(files) > 5
    assert len({file.path for file in files}) == len(files)
    check(root, tmp_path, manifest)


def test_unreadable_ranges_are_in_files_of_quarantine_and_gaps(tmp_path: Path) -> None:
    data = bytearray(closed_segment(messages(100), SIZE))
    data[2000] ^= 0xFF
    root = write_store(tmp_path / "store", [(0, bytes(data)), (2 * SIZE, open_segment(messages(5), SIZE, 2 * SIZE))])
    manifest = run_all(tasks_of(root, tmp_path))
    assert refused(manifest) == (1, 1)
    for table, schema in (("quarantine", QUARANTINE), ("gaps", GAPS)):
        (file,) = (row for row in manifest if row.table == table)
        (row,) = pq.ParquetFile(tmp_path / table / file.path).read().to_pylist()
        assert list(row) == schema.names
        assert (row["broker"], row["run_id"], row["parser_version"]) == ("broker/../a", "run-1", "1.2")
        assert json.loads(file.statistics)["numRecords"] == 1
    assert (row["start_offset"], row["end_offset"], row["found"]) == (SIZE, 2 * SIZE, "no such file")


def test_no_value_exceeds_the_maximum_in_the_statistics(tmp_path: Path) -> None:
    highest = "a" * 32 + "\U0010ffff\U0010ffff" + "z"
    sent = [new_message(0, properties=(("UNIQ_KEY", highest), ("TAGS", "b" * 32 + "\U0010ffff")))]
    root = write_store(tmp_path / "store", [(0, open_segment(sent, SIZE))])
    (file,) = files_of(run_all(tasks_of(root, tmp_path)))
    greatest = json.loads(file.statistics)["maxValues"]
    assert "unique_key" not in greatest
    assert greatest["topic"] >= sent[0].topic
    assert "tags" not in greatest


@pytest.mark.parametrize("folder", ["bodies", "messages"])
def test_a_file_that_cannot_be_closed_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if f"/lake/{folder}/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "no space left")
        sync(descriptor)

    tasks = tasks_of(write_store(tmp_path / "store", [(0, open_segment(messages(20), SIZE))]), tmp_path / "lake")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        run_all(tasks)
    assert not [path for path in (tmp_path / "lake" / folder).rglob("*") if path.is_file()]
