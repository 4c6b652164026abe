"""Values of sketches that contain all of them, compared with the library's own reading."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch

from commitlake.pipelines.topic_minutes.minute_counts import sketch_groups
from commitlake.pipelines.tps.minute_sketches import extract_sketch_values
from commitlake.schemas.tables.topic_minutes import SKETCH_K


def sketch_of(values: list[float], k: int = SKETCH_K) -> bytes:
    sketch = kll_doubles_sketch(k)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize())


SAMPLES: dict[str, tuple[bytes | None, list[float] | None]] = {
    "null": (None, []),
    "one value": (sketch_of([7]), [7]),
    "two values": (sketch_of([3, 1]), [1, 3]),
    "another k": (sketch_of([5, 6, 5], 200), [5, 5, 6]),
    "k values": (sketch_of([float(n) for n in range(SKETCH_K)]), [float(n) for n in range(SKETCH_K)]),
    # The library must read these: None means "not all values are there".
    "empty": (sketch_of([]), None),
    "two levels": (sketch_of([float(n) for n in range(SKETCH_K + 1)]), None),
    "many levels": (sketch_of([float(n) for n in range(100_000)]), None),
}


@pytest.mark.parametrize("order", [1, -1])
def test_sketches_of_up_to_k_values_are_read(order: int) -> None:
    samples = list(SAMPLES.values())[::order]
    found = extract_sketch_values(pa.array([data for data, _ in samples], pa.binary()))
    assert found.others.tolist() == [number for number, (_, values) in enumerate(samples) if values is None]
    parts = np.split(found.values, np.cumsum(found.counts)[:-1])
    assert [sorted(part.tolist()) for part in parts] == [values or [] for _, values in samples]


@pytest.mark.parametrize(("start", "count"), [(0, 8), (1, 5), (4, 4), (3, 0)])
def test_slices_are_read(start: int, count: int) -> None:
    samples = list(SAMPLES.values())[start : start + count]
    found = extract_sketch_values(pa.array([data for data, _ in SAMPLES.values()], pa.binary()).slice(start, count))
    assert found.counts.tolist() == [len(values or []) for _, values in samples]
    assert len(found.values) == found.counts.sum()


def test_sketches_that_archive_writes_are_read() -> None:
    chance = np.random.default_rng(3)
    counts = chance.integers(0, SKETCH_K + 2, 300)
    starts = np.concatenate([[0], np.cumsum(counts)])
    values = chance.integers(0, 1000, starts[-1]).astype(np.float64)
    found = extract_sketch_values(sketch_groups(values, starts))
    assert found.others.tolist() == np.flatnonzero(counts > SKETCH_K).tolist()
    assert found.counts.tolist() == np.where(counts > SKETCH_K, 0, counts).tolist()
    expected = [np.sort(part) for part, count in zip(np.split(values, starts[1:-1]), counts, strict=True)
                if count <= SKETCH_K]  # fmt: skip
    parts = np.split(found.values, np.cumsum(found.counts[found.counts > 0])[:-1])
    assert [np.sort(part).tolist() for part in parts] == [part.tolist() for part in expected if len(part)]


@pytest.mark.parametrize("data", [b"\x01" * 16, b"\x05\x01\x0f\x00" + bytes(60), b"\x02\x02\x0f\x00" + bytes(12), b"x"])
def test_other_bytes_are_left_to_the_library(data: bytes) -> None:
    found = extract_sketch_values(pa.array([sketch_of([1, 2]), data, sketch_of([9])], pa.binary()))
    assert (found.others.tolist(), found.counts.tolist(), sorted(found.values.tolist())) == ([1], [2, 0, 1], [1, 2, 9])
