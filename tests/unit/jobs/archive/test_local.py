"""Tests of `archive --local`: this process alone writes the same lake as Spark's workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.delta import open_delta_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.frames import BodyRef
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.uncompiled_records import walk_store
from commitlake.connectors.runtime.side_process import SideProcess
from commitlake.jobs.archive import command as archive
from commitlake.jobs.audit import command as audit
from commitlake.pipelines.message_keys.progress import followed_version
from tests.support.indexed_stores import write_indexed_store
from tests.support.lakes import GrowingLake, rows_of
from tests.support.logs import closed_segment, messages, new_message, open_segment, write_store
from tests.support.packs import folder_store

SIZE = 1 << 20
ROWS = [*messages(300)]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every request for a Spark session fail."""
    monkeypatch.setattr("commitlake.connectors.spark.session.get_session", lambda *_: 1 / 0)


def run(root: Path, *options: str) -> tuple[int, Lake]:
    """Archive a store into the lake next to it."""
    lake = root.parent / "lake"
    named = ["--store", str(root), "--broker", "a", "--lake", str(lake), "--partition-mib", "1", "--quiet"]
    return archive.main([*named, *options]), Lake(str(lake))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_every_message_is_in_the_lake_once(tmp_path: Path, threads: str) -> None:
    root = write_store(tmp_path / "store", [(0, closed_segment(ROWS, SIZE)), (SIZE, open_segment(ROWS, SIZE, SIZE))])
    code, lake = run(root, "--local", "--threads", threads, "--no-quality")
    assert code == 0
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    expected = {found.message.physical_offset: found.message.body for found in walk_store(store, SIZE) if found.message}
    columns = ["physical_offset", "body_ref", "body_crc"]
    rows = lake.table("messages").to_pyarrow_table(columns=columns).to_pylist()
    packs = folder_store(Path(lake.bodies_root))
    bodies = {row["physical_offset"]: read_body(packs, BodyRef(**row["body_ref"]), row["body_crc"]) for row in rows}
    assert (len(rows), bodies) == (len(expected), expected)


class CountedProcess(SideProcess):
    """A side process for quality checks whose starts are counted."""

    started = 0

    def __init__(self, prepare: Callable[[], object]) -> None:
        super().__init__(prepare)
        CountedProcess.started += 1


def test_all_tables_are_updated_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.pipelines.quality.judge_subprocess.SideProcess", CountedProcess)
    root = write_indexed_store(tmp_path / "store", 40)
    code, lake = run(root, "--local")
    assert (code, CountedProcess.started) == (0, 1)
    assert (run(root, "--local")[0], CountedProcess.started) == (0, 1)
    last = read_last_commit(lake)
    assert last is not None
    assert last.sequence == 1
    assert followed_version(lake) == lake.table("messages").version()
    for table in (lake.uri("profiles"), lake.uri("quality_results"), lake.uri("archive_runs")):
        assert open_delta_table(table).to_pyarrow_table().num_rows
    assert (Path(lake.root) / "quality.html").exists()


def test_damage_is_quarantined_and_ends_with_exit_code_3(tmp_path: Path) -> None:
    data = bytearray(open_segment(ROWS, SIZE))
    data[4000] ^= 0xFF
    root = write_store(tmp_path / "store", [(0, bytes(data))])
    code, lake = run(root, "--local", "--no-quality")
    assert code == 3
    assert lake.table("quarantine").to_pyarrow_table().num_rows == 1


def test_a_queue_that_skips_an_offset_is_marked_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    places = ["--store", str(growing.store), "--lake", growing.lake.root, "--local"]
    growing.write(new_message(number, topic, queue_id=0) for number in range(2) for topic in ("sound", "odd"))
    growing._queues["odd", 0] += 1  # the broker has skipped an offset
    growing.write(new_message(number, topic, queue_id=0) for number in range(2, 4) for topic in ("sound", "odd"))
    assert archive.main(places) == 3
    summary = capsys.readouterr().err
    assert "messages of 1 queue are missing in a log without damage" in summary
    assert "broker 'broker-a', topic 'odd', queue 0" in summary
    assert growing.lake.table("messages").to_pyarrow_table().num_rows == 8
    assert audit.main([*places, "--quiet"]) == 0
    growing.write(new_message(number, topic, queue_id=0) for number in range(4, 6) for topic in ("sound", "odd"))
    assert archive.main([*places, "--quiet"]) == 0
    damage = [
        row
        for row in rows_of(growing.lake.uri("quality_results"))
        if row["severity"] == "damage" and not row["success"]
    ]
    assert [json.loads(example)["topic"] for row in damage for example in row["examples"]] == ["odd"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--local", "--follow"], "--follow and --available-now need Spark"),
        (["--local", "--available-now"], "--follow and --available-now need Spark"),
        (["--follow", "--threads", "4"], "--threads has no effect on Spark"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert run(tmp_path / "store", *options)[0] == 2
    assert words in capsys.readouterr().err


def test_masks_that_make_bodies_larger_do_not_stop_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_MASK_KEY", "0123456789abcdef" * 4)
    body = b'[{"e":"1"},' + b'{"e":"2"},' * 50 + b"{}]"
    root = write_store(tmp_path / "store", [(0, open_segment([new_message(body=body)], SIZE))])
    code, lake = run(root, "--local", "--mask", "body.e=hash")
    assert code == 0
    (row,) = lake.table("messages").to_pyarrow_table(columns=["size", "body_size"]).to_pylist()
    assert row["body_size"] > row["size"]
    assert audit.main(["--lake", lake.root, "--local", "--quiet"]) == 0
