"""Mapped windows: a file that is truncated under them gives zeros and a mark, and never ends the process."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import DamagedLogError, StoreError
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.files.segment_windows import IS_SUPPORTED, Mapping, OpenWindow, Windows
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.snapshots import plan_splits, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault
from commitlake.schemas.tables.messages import SOURCE
from tests.support.exit_codes import exits
from tests.support.logs import closed_segment, messages, new_message, records, write_store

SIZE = 4 << 20
COUNT = 17_500
SCHEMA = arrow_schema(SOURCE.select_columns(["keys"]))
pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="segments are mapped on 64-bit Linux only")


@pytest.fixture(scope="module")
def segment() -> bytes:
    return closed_segment(messages(COUNT, 7), SIZE)


@pytest.fixture
def split(tmp_path: Path, segment: bytes) -> Split:
    (store,) = find_stores(str(write_store(tmp_path, [(0, segment)])), "b", formats=COMMITLOGS)
    (split,) = plan_splits(store, take_snapshot([store]).ranges["b"], SIZE)
    return split


def places(split: Split) -> tuple[list[int], list[BadRange], WalkEnd]:
    """Return the starts of records, the bad ranges, and the end of the walk."""
    end, starts, bad = WalkEnd(), [], []
    with OpenSegment(split.path) as file:
        for step in walk_records(file, split, 1 << 16, DEFAULT_MAX_RECORD_BYTES, end):
            starts += (step.origin + step.parts[0]).tolist()
            bad += step.bad
    return starts, bad, end


def test_large_segments_are_mapped_and_read_whole(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped, bad, _ = places(split)
    assert bad == []
    monkeypatch.setattr("commitlake.connectors.reading.files.segment_windows.MAP_BYTES", 0)
    read, _, _ = places(split)
    assert mapped == read
    assert len(mapped) > COUNT // 2


@pytest.mark.parametrize("kept", [1, 5000])
def test_file_that_is_cut_within_a_page_of_a_step_is_an_error(split: Split, kept: int) -> None:
    with OpenSegment(split.path) as file:
        steps = walk_records(file, split, 1 << 16, DEFAULT_MAX_RECORD_BYTES, WalkEnd())
        next(steps)
        os.truncate(split.path, kept)
        with pytest.raises(StoreError, match="was truncated while it was read", check=exits(ExitCode.FAILED)):
            next(steps)


@pytest.mark.parametrize("kept", [0, 2 << 20, 3 << 20])
def test_file_that_is_cut_between_two_steps_is_a_bad_range(split: Split, kept: int) -> None:
    starts: list[int] = []
    bad: list[BadRange] = []
    with OpenSegment(split.path) as file:
        hop = CommitLogDecoder({"physical_offset", "properties"}, "b", Filters()).locate_next_records
        for number, step in enumerate(
            walk_records(file, split, 1 << 16, DEFAULT_MAX_RECORD_BYTES, WalkEnd(), locate_records=hop)
        ):
            if number == 0:
                os.truncate(split.path, kept)
                first = step.origin + step.parts[0]
                assert len(first) < COUNT
            starts += (step.origin + step.parts[0]).tolist()
            bad += step.bad
    assert starts == sorted(set(starts))
    assert bad[-1].fault is Fault.CUT
    assert bad[-1].end == split.end
    assert all(start < max(kept, int(first[-1]) + 1) for start in starts)


def test_truncating_a_file_while_its_steps_are_read_is_an_error(split: Split) -> None:
    with OpenSegment(split.path) as file:
        steps = walk_records(file, split, 1 << 16, DEFAULT_MAX_RECORD_BYTES, WalkEnd())
        step = next(steps)
        os.truncate(split.path, 0)
        assert not step.window[: 1 << 20].any()
        with pytest.raises(StoreError, match="was truncated while it was read", check=exits(ExitCode.FAILED)):
            next(steps)


def test_file_that_is_cut_before_it_is_read_is_damage(split: Split) -> None:
    os.truncate(split.path, 2 << 20)
    with pytest.raises(DamagedLogError, match="cut"):
        list(read_split(split, Request(SCHEMA)))


def test_file_that_is_deleted_while_it_is_read_is_read_to_its_end(split: Split) -> None:
    whole, _, _ = places(split)
    with OpenSegment(split.path) as file:
        Path(split.path).unlink()
        starts = [
            start
            for step in walk_records(file, split, 1 << 16, DEFAULT_MAX_RECORD_BYTES, WalkEnd())
            for start in (step.origin + step.parts[0]).tolist()
        ]
    assert starts == whole


def test_a_mapping_that_begins_within_a_page_has_the_right_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes(100_000))
    with path.open("rb") as file:
        mapping = Mapping.map_file(file.fileno(), 5001, 1 << 20)
        assert mapping is not None
        assert mapping.window.tobytes() == path.read_bytes()[5001:]
        assert not mapping.was_truncated
        mapping.close()


def test_no_mapping_after_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with path.open("rb") as file:
        assert Mapping.map_file(file.fileno(), 100, 10) is None
        assert Mapping.map_file(file.fileno(), 1000, 10) is None


def test_other_bus_errors_still_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    program = (
        "import mmap, os, sys\n"
        "from commitlake.connectors.reading.files.segment_windows import Mapping\n"
        "file = open(sys.argv[1], 'rb+')\n"
        "assert Mapping.map_file(file.fileno(), 0, 10) is not None\n"
        "other = mmap.mmap(file.fileno(), 0)\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(other[9000])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGBUS
    assert done.stdout == b""


@pytest.mark.parametrize("cut", [100, 300, 1500])
def test_zeros_after_a_cut_within_the_last_page_are_not_returned_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    sent = [new_message(n, body=bytes(1000), properties=(("KEYS", f"order-{n} " + "x" * 600),)) for n in range(2000)]
    data = b"".join(records(sent))
    write_store(tmp_path, [(0, data)])
    (store,) = find_stores(str(tmp_path), "b", formats=COMMITLOGS)
    (split,) = plan_splits(store, take_snapshot([store]).ranges["b"], SIZE)
    assert (len(data) - cut) // mmap.PAGESIZE == len(data) // mmap.PAGESIZE
    original = Windows.open

    def open_and_cut(self: Windows, origin: int, reach: int, limit: int) -> OpenWindow:
        opened = original(self, origin, reach, limit)
        os.truncate(split.path, len(data) - cut)
        return opened

    monkeypatch.setattr(Windows, "open", open_and_cut)
    with pytest.raises(DamagedLogError, match="cut"):
        list(read_split(split, Request(SCHEMA)))
    keys = [
        row
        for batch in read_split(split, Request(SCHEMA, Mode.DROPMALFORMED))
        for row in batch.column("keys").to_pylist()
    ]
    assert keys == [[f"order-{n}", "x" * 600] for n in range(len(keys))]
    assert len(keys) >= 1998
