"""Merged sketches of groups and windows, compared with their values."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch

from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.topic_minutes.minute_counts import SCHEMA
from commitlake.pipelines.tps.minute_sketches import merge_minute_sketches
from commitlake.pipelines.tps.rates_query import MINUTE, RatesQuestion
from commitlake.schemas.tables import topic_minutes
from commitlake.schemas.times import EPOCH

START = EPOCH + 29_000_000 * MINUTE
MINUTES = 60
COLUMNS = ["size_sketch", "wait_sketch"]
Values = dict[tuple[Any, ...], list[float]]


def sketch_of(values: list[float]) -> bytes | None:
    sketch = kll_doubles_sketch(topic_minutes.SKETCH_K)
    for value in values:
        sketch.update(value)
    return sketch.serialize() if values else None


def make_lake(folder: Path, chance: random.Random, largest: int) -> tuple[Lake, list[tuple[dict[str, Any], Any]]]:
    """Make a lake of two files; return it, and its rows with the values of their sketches."""
    rows = []
    for _ in range(600):
        values = [[float(chance.randrange(1000)) for _ in range(chance.randrange(most))] for most in (largest, 3)]
        row: dict[str, Any] = {field.name: None for field in SCHEMA} | {
            "broker": "a",
            "topic": chance.choice(["orders", "payments"]),
            "queue_id": chance.choice([None, 0, 1]),
            "kind": "normal",
            "minute": chance.choice([None, *(START + minute * MINUTE for minute in range(MINUTES + 5))]),
            "run_id": "run",
        }
        row |= dict(zip(COLUMNS, map(sketch_of, values), strict=True))
        rows.append((row, dict(zip(COLUMNS, values, strict=True))))
    lake = Lake(str(folder))
    files = [
        write_plain_file(
            pa.Table.from_pylist([row for row, _ in rows[part::2]], SCHEMA),
            lake,
            "topic_minutes",
            f"{part}.parquet",
        )
        for part in range(2)
    ]
    append_files(lake, "topic_minutes", files, 1)
    return lake, rows


@pytest.mark.parametrize("by", [[], ["topic"], ["queue", "topic"]], ids="-".join)
@pytest.mark.parametrize("minutes", [MINUTES, 20, 1])
def test_small_sketches_are_merged_exactly(tmp_path: Path, by: list[str], minutes: int) -> None:
    lake, rows = make_lake(tmp_path, random.Random(1), 4)
    question = RatesQuestion(by, START, START + MINUTES * MINUTE)
    expected: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, values in rows:
        if row["minute"] is not None and row["minute"] < question.end:
            key = tuple(row["queue_id" if name == "queue" else name] for name in by)
            for column in COLUMNS:
                window = (row["minute"] - START) // (minutes * MINUTE)
                expected[key, window][column] += values[column]
    merged = merge_minute_sketches(lake, question, datetime.timedelta(minutes=minutes), COLUMNS)
    found = {key: {column: sketch.n for column, sketch in sketches.items()} for key, sketches in merged.items()}
    assert found == {
        key: counts
        for key, values in expected.items()
        if (counts := {column: len(numbers) for column, numbers in values.items() if numbers})
    }
    for key, sketches in merged.items():
        for column, sketch in sketches.items():
            numbers = sorted(expected[key][column])
            if not sketch.is_estimation_mode():
                assert sketch.get_quantile(0.5, True) == numbers[-(-len(numbers) // 2) - 1]
            assert (sketch.get_min_value(), sketch.get_max_value()) == (numbers[0], numbers[-1])


def test_sketches_of_many_values_are_merged(tmp_path: Path) -> None:
    lake, rows = make_lake(tmp_path, random.Random(2), 900)
    merged = merge_minute_sketches(lake, RatesQuestion([], START, START + 100 * MINUTE), 100 * MINUTE, COLUMNS)
    sketch = merged[(), 0]["size_sketch"]
    numbers = sorted(number for row, values in rows if row["minute"] is not None for number in values["size_sketch"])
    assert sketch.n == len(numbers)
    for rank in (0.5, 0.95, 0.99):
        value = sketch.get_quantile(rank, True)
        assert abs(sum(number <= value for number in numbers) / len(numbers) - rank) < 0.02
