"""Listed records are read as by a scan, and match the index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.files.segment_files import LocalFile, OpenSegment, Window
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.listed_records import walk_listed_records
from commitlake.connectors.reading.splits import ListedSplit
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from commitlake.schemas.layouts.rocketmq.scan import Fault
from tests.support.logs import new_message, open_segment, records, write_store

SIZE = 1 << 18
SENT = [new_message(n, topic=f"topic-{n % 2}", body=bytes([n]) * (n * 37 % 500)) for n in range(60)]
RECORDS = records(SENT)
STARTS = np.cumsum([0, *(len(record) for record in RECORDS[:-1])])
SIZES = np.array([len(record) for record in RECORDS])


def listed(root: Path, rows: list[int], data: bytes | None = None) -> ListedSplit:
    """Return a split of some records of a segment."""
    write_store(root, [(0, open_segment(SENT, SIZE) if data is None else data)])
    queues = tuple((f"topic-{topic}", queue) for topic in range(2) for queue in range(4))
    parsed = [parse_message(RECORDS[row]) for row in rows]
    return ListedSplit(
        "b",
        str(root / "commitlog" / ("0" * 20)),
        0,
        int(STARTS[rows[0]]),
        int(STARTS[rows[-1]] + SIZES[rows[-1]]),
        SIZE,
        SIZE,
        ROCKETMQ,
        offsets=STARTS[rows].astype(np.int64).tobytes(),
        sizes=SIZES[rows].astype(np.int64).tobytes(),
        queues=queues,
        queue_numbers=np.array([row % 2 * 4 + row % 4 for row in rows], np.int32).tobytes(),
        queue_offsets=np.array([found[0].queue_offset for found in parsed if found], np.int64).tobytes(),
    )


def read(split: ListedSplit, window: int = 1 << 20) -> tuple[list[int], list[BadRange]]:
    """Return the starts of records, and the bad ranges."""
    starts: list[int] = []
    bad: list[BadRange] = []
    with OpenSegment(split.path) as file:
        for step in walk_listed_records(file, split, window, 1 << 20):
            assert len(step.window) >= step.parts[record_walk.START].max(initial=0) + 64
            starts += (step.origin + step.parts[record_walk.START]).tolist()
            bad += step.bad
    return starts, bad


@pytest.mark.parametrize("window", [1, 300, 2000, 1 << 20])
@pytest.mark.parametrize("rows", [[0], [59], [3, 4, 5], [0, 2, 4, 5, 9, 58], list(range(60)), list(range(1, 60, 7))])
def test_listed_records_are_read_with_any_window(tmp_path: Path, rows: list[int], window: int) -> None:
    assert read(listed(tmp_path, rows), window) == (STARTS[rows].tolist(), [])


def test_records_far_apart_are_read_without_the_bytes_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = listed(tmp_path, [0, 1])
    far = records([new_message(0), *[new_message(1, body=bytes(80_000))] * 2, new_message(3)])
    data = b"".join(far).ljust(SIZE, b"\0")
    starts = np.array([0, sum(map(len, far[:3]))], np.int64)
    write_store(tmp_path, [(0, data)])
    split = replace(
        split,
        offsets=starts.tobytes(),
        sizes=np.array([len(far[0]), len(far[3])], np.int64).tobytes(),
        queues=(),
    )
    read = []
    original = LocalFile.read_into

    def counting(self: LocalFile, window: Window, position: int) -> int:
        read.append((position, len(window)))
        return original(self, window, position)

    monkeypatch.setattr(LocalFile, "read_into", counting)
    with OpenSegment(split.path) as file:
        steps = [(step.origin, step.parts.shape[1]) for step in walk_listed_records(file, split, 1 << 20, 1 << 20)]
    assert steps == [(0, 2)]
    assert read == [(0, len(far[0])), (int(starts[1]), len(far[3]))]


def test_a_damaged_body_is_a_bad_range_among_good_records(tmp_path: Path) -> None:
    data = bytearray(open_segment(SENT, SIZE))
    data[STARTS[5] + 88] ^= 1
    rows = [3, 4, 5, 6, 20]
    starts, bad = read(listed(tmp_path, rows, bytes(data)))
    assert starts == STARTS[[3, 4, 6, 20]].tolist()
    assert bad == [BadRange(int(STARTS[5]), int(STARTS[6]), Fault.BODY_CRC)]


def test_a_file_that_was_cut_is_damage(tmp_path: Path) -> None:
    starts, bad = read(listed(tmp_path, [3, 4, 5], open_segment(SENT, SIZE)[: STARTS[5] + 20]))
    assert starts == STARTS[[3, 4]].tolist()
    assert [(found.start, found.fault) for found in bad] == [(STARTS[5], Fault.CUT)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"offsets": (1, 8)}, "expected a record of .* bytes, according to entry .*, found magic"),
        ({"sizes": (1, -8)}, "expected a record of .* bytes, according to entry .*, found a larger one"),
        ({"sizes": (1, 8)}, "expected a record of .* bytes, according to entry .*, found one of"),
        ({"queue_numbers": (2, 4)}, "expected topic 'topic-1', according to entry 1 of the ConsumeQueue topic-1/2"),
        ({"queue_numbers": (2, 1)}, "expected queue id 3, .* found 2"),
        ({"queue_offsets": (0, 5)}, "expected queue offset 5, .* found 0"),
    ],
)
def test_an_entry_that_contradicts_its_record_is_an_error(
    tmp_path: Path, change: dict[str, tuple[int, int]], said: str
) -> None:
    rows = [1, 4, 6, 7]
    split = listed(tmp_path, rows)
    for name, (row, step) in change.items():
        values = split.field_array(name).copy()
        values[row] += step
        split = replace(split, **{name: values.tobytes()})  # type: ignore[arg-type]
    with pytest.raises(IndexMismatchError, match=said) as error:
        read(split)
    assert "read with the Spark option useIndexes=false" in str(error.value)


def test_an_entry_that_points_to_zeros_is_an_error(tmp_path: Path) -> None:
    split = listed(tmp_path, [1])
    split = replace(split, offsets=np.array([200_000], np.int64).tobytes())
    with pytest.raises(IndexMismatchError, match="found unwritten"):
        read(split)
