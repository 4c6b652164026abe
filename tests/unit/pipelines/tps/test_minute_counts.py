"""Sums and busiest minutes of groups from `topic_minutes`, compared with a plain loop over its rows."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.topic_minutes.minute_counts import SCHEMA
from commitlake.pipelines.tps import minute_counts, minute_rows
from commitlake.pipelines.tps.minute_counts import sum_whole_range, sum_windows
from commitlake.pipelines.tps.rates_query import MINUTE, MINUTES, SUMS, RatesQuestion
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import EPOCH

START = EPOCH + 29_000_000 * MINUTE
HOUR = 60 * MINUTE
Row = dict[str, Any]


def random_row(chance: random.Random, *, has_zeros: bool) -> Row:
    """Return a row of one of some groups; `has_zeros` makes all rows agree in columns that are mostly zeros."""
    row: Row = {field.name: None for field in SCHEMA} | {field.name: 1 for field in SCHEMA if field.type == pa.int64()}
    row |= {
        "broker": chance.choice(["a", "b"]),
        "topic": chance.choice(["orders", "payments", "%RETRY%g"]),
        "queue_id": chance.choice([None, 0, 1, 7]),
        "tag": chance.choice([None, "x", "y"]),
        "kind": "normal" if has_zeros else chance.choice(["normal", "half", "retry", "dlq"]),
        "minute": chance.choice([None, *(START + chance.randrange(120) * MINUTE for _ in range(9))]),
        "messages": chance.randrange(1, 100),
        "bytes": chance.randrange(1 << 50),
        "rechecked": 0 if has_zeros else chance.randrange(2),
        "committed": 0 if has_zeros else chance.randrange(3),
        "clock_skew_messages": 0 if has_zeros else chance.randrange(2),
        "other_tags": False if has_zeros else chance.choice([True, False]),
        "run_id": "run",
    }
    return row


@pytest.fixture(scope="module")
def rows() -> list[list[Row]]:
    """Rows of three data files."""
    chance = random.Random(5)
    return [[random_row(chance, has_zeros=number == 1) for _ in range(400)] for number in range(3)]


@pytest.fixture(scope="module")
def lake(rows: list[list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("minutes")))
    files = [
        write_plain_file(
            pa.Table.from_pylist(part, SCHEMA), lake, "topic_minutes", f"{number}.parquet", row_group_rows=90
        )
        for number, part in enumerate(rows)
    ]
    append_files(lake, "topic_minutes", files, 1)
    return lake


def add_of(row: Row) -> dict[str, int]:
    kind = row["kind"]
    return {
        "messages": row["messages"],
        "bytes": row["bytes"],
        "sent": row["messages"] if kind == "normal" else 0,
        "retries": row["messages"] if kind == "retry" else 0,
        "dead_letters": row["messages"] if kind == "dlq" else 0,
        "prepared": row["messages"] - row["rechecked"] if kind == "half" else 0,
        "committed": row["committed"] if kind == "normal" else 0,
        "clock_skew": row["clock_skew_messages"],
        "other_tags": row["messages"] if row["other_tags"] else 0,
    }


def chosen(rows: list[list[Row]], question: RatesQuestion) -> list[Row]:
    asked = {"tag" if name == "tags" else name: values for name, values in question.selection.column_values}
    return [
        row
        for part in rows
        for row in part
        if row["minute"] is not None
        and question.start <= row["minute"] < question.end
        and all(row[name] in values for name, values in asked.items())
        and (question.only is None or key_of(row, question) in question.only)
    ]


def key_of(row: Row, question: RatesQuestion) -> tuple[Any, ...]:
    return tuple(row[MINUTES.groups[name]] for name in question.by)


QUESTIONS = {
    "by topic": RatesQuestion(["topic"], START, START + 2 * HOUR),
    "one group": RatesQuestion([], START, START + 2 * HOUR),
    "all columns": RatesQuestion(["broker", "topic", "queue", "tag", "kind"], START, START + 2 * HOUR),
    "a part of the time": RatesQuestion(["queue"], START + 30 * MINUTE, START + HOUR),
    "conditions": RatesQuestion(
        ["tag"],
        START,
        START + HOUR,
        selection=Selection(topics=["orders"], kinds=["normal", "half"], brokers=["a"], queue_ids=[7]),
    ),
    "a tag": RatesQuestion(["kind"], START, START + HOUR, selection=Selection(tags=["x"])),
    "some groups": RatesQuestion(
        ["topic", "queue"], START, START + HOUR, only=[("orders", 7), ("payments", None), ("no such topic", 0)]
    ),
    "nothing": RatesQuestion(["topic"], START, START + HOUR, selection=Selection(topics=["no such topic"])),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("limits", ["usual", "small"])
def test_sums_and_peaks_equal_those_of_the_rows(
    lake: Lake,
    rows: list[list[Row]],
    monkeypatch: pytest.MonkeyPatch,
    question: RatesQuestion,
    limits: str,
) -> None:
    if limits == "small":
        monkeypatch.setattr(minute_counts, "MAX_PEAK_CELLS", 50)
        monkeypatch.setattr(minute_counts, "_MAX_DENSE_CELLS", 1)
        monkeypatch.setattr(minute_rows, "_MAX_CODES", 1)
        monkeypatch.setattr(minute_rows, "_MAX_NUMBER", 20)
    expected: dict[tuple[Any, ...], Counter[str]] = {}
    minutes: dict[tuple[Any, ...], Counter[datetime.datetime]] = {}
    for row in chosen(rows, question):
        expected.setdefault(key_of(row, question), Counter()).update(add_of(row))
        minutes.setdefault(key_of(row, question), Counter())[row["minute"]] += row["messages"]
    sums, peaks = sum_whole_range(lake, question, lambda _: None)
    assert {key: dict(zip(SUMS, values.tolist(), strict=True)) for key, values in sums.items()} == {
        key: {name: counts[name] for name in SUMS} for key, counts in expected.items()
    }
    assert peaks == {key: first_of_most(counts) for key, counts in minutes.items()}


def first_of_most(counts: Mapping[datetime.datetime, int]) -> tuple[int, datetime.datetime]:
    most = max(counts.values())
    return most, min(minute for minute, count in counts.items() if count == most)


@pytest.mark.parametrize("dense_cells", [1, 1 << 16])
def test_windows_have_the_sums_of_their_rows(
    lake: Lake, rows: list[list[Row]], monkeypatch: pytest.MonkeyPatch, dense_cells: int
) -> None:
    monkeypatch.setattr(minute_counts, "_MAX_DENSE_CELLS", dense_cells)
    question = QUESTIONS["by topic"]
    expected: dict[tuple[Any, ...], Any] = {}
    for row in chosen(rows, question):
        counts = expected.setdefault(key_of(row, question), np.zeros((len(SUMS), 8), np.int64))
        counts[:, (row["minute"] - START) // (15 * MINUTE)] += list(add_of(row).values())
    found = sum_windows(lake, question, 15 * MINUTE, lambda _: None)
    assert {key: values.tolist() for key, values in found.items()} == {
        key: values.tolist() for key, values in expected.items()
    }


def test_an_answer_that_is_too_large_is_refused_during_counting(lake: Lake) -> None:
    def refuse(cells: int) -> None:
        if cells > 20:
            raise ValueError(cells)

    with pytest.raises(ValueError, match=r"\d+"):
        sum_windows(lake, QUESTIONS["all columns"], 15 * MINUTE, refuse)
