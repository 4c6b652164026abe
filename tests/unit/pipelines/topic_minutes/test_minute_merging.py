"""Rows of one key become one equivalent row."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch

from commitlake.jobs.audit import command as audit
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.tps import command as tps
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.pipelines.topic_minutes.minute_counts import SCHEMA
from commitlake.pipelines.topic_minutes.minute_merging import (
    GREATEST,
    KEY,
    LEAST,
    SKETCHES,
    join_rows_with_same_key,
    join_sorted_batches,
)
from commitlake.pipelines.topic_minutes.progress import covered_sequence, joined_run_id
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.topic_minutes import SKETCH_K
from commitlake.schemas.times import EPOCH
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, rows_of
from tests.support.logs import new_message

Row = dict[str, Any]
_SECOND = datetime.timedelta(seconds=1)
_BUSIEST = ("busiest_second", "busiest_second_messages")


def sketch(values: list[float]) -> bytes | None:
    made = kll_doubles_sketch(SKETCH_K)
    for value in values:
        made.update(value)
    return bytes(made.serialize()) if values else None


def random_row(chance: random.Random) -> Row:
    row: Row = {field.name: chance.randrange(9) for field in SCHEMA if field.type == pa.int64()}
    row |= {name: chance.choice([None, 1, 5]) for name in GREATEST[2:]}
    minute = chance.choice([None, *(EPOCH + number * 60 * _SECOND for number in range(3))])
    second = None if minute is None else minute + chance.randrange(3) * _SECOND
    return row | {
        "broker": chance.choice("ab"),
        "topic": chance.choice(["orders", "订单"]),
        "queue_id": chance.choice([None, 0, 1]),
        "tag": chance.choice([None, "x"]),
        "other_tags": chance.choice([True, False]),
        "kind": "normal",
        "minute": minute,
        "run_id": chance.choice(["one", "two"]),
        "busiest_second": second,
        "busiest_second_messages": 0 if second is None else chance.randrange(1, 9),
        **{name: sketch([float(chance.randrange(50)) for _ in range(chance.randrange(4))]) for name in SKETCHES},
    }


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Rows in the order of data files, many with the same key."""
    chance = random.Random(3)
    found = [random_row(chance) for _ in range(300)]
    return sorted(found, key=lambda row: (row["topic"], row["minute"] is not None, row["minute"] or EPOCH))


def values_of(data: bytes | None) -> list[float]:
    if data is None:
        return []
    made = kll_doubles_sketch.deserialize(data)
    return list(made.get_quantiles([number / made.n for number in range(1, made.n + 1)], True))


def joined_by_hand(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    parts: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        parts[tuple(row[name] for name in KEY)].append(row)
    found = {}
    for key, same in parts.items():
        joined: Row = {}
        for field in SCHEMA:
            given = [row[field.name] for row in same if row[field.name] is not None]
            if field.name in LEAST:
                joined[field.name] = min(given)
            elif field.name in GREATEST:
                joined[field.name] = max(given, default=None)
            elif field.name in SKETCHES:
                joined[field.name] = sorted(value for data in given for value in values_of(data))
            elif field.type == pa.int64():
                joined[field.name] = sum(given)
        seconds: dict[datetime.datetime, int] = defaultdict(int)
        for row in same:
            if row["busiest_second"] is not None:
                seconds[row["busiest_second"]] += row["busiest_second_messages"]
        busiest = min(seconds, key=lambda second: (-seconds[second], second), default=None)
        found[key] = joined | dict(zip(_BUSIEST, (busiest, 0 if busiest is None else seconds[busiest]), strict=True))
    return found


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_a_joined_row_has_the_sums_of_its_rows(rows: list[Row], batch_rows: int) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    batches = (table.slice(start, batch_rows) for start in range(0, len(rows), batch_rows))
    joined = pa.concat_tables(join_sorted_batches(batches, "joined-3"))
    assert joined.schema == SCHEMA
    found = {}
    for row in joined.to_pylist():
        assert row.pop("run_id") == "joined-3"
        key = tuple(row.pop(name) for name in KEY)
        assert key not in found
        found[key] = row | {name: values_of(row[name]) for name in SKETCHES}
    assert found == joined_by_hand(rows)
    order = [(row["topic"], row["minute"] is not None, row["minute"] or EPOCH) for row in joined.to_pylist()]
    assert order == sorted(order)


def test_single_rows_are_unchanged(rows: list[Row]) -> None:
    alone = join_rows_with_same_key(pa.Table.from_pylist(rows, SCHEMA), "one")
    assert join_rows_with_same_key(alone, "one").equals(alone)


@pytest.fixture
def growing(tmp_path: Any) -> GrowingLake:
    """A lake of four runs, in which each minute is in several."""
    growing = GrowingLake(tmp_path)
    for _ in range(4):
        archive_more(growing)
    return growing


def archive_more(growing: GrowingLake) -> None:
    """Archive a run of messages of three minutes."""
    growing.write(
        new_message(number, topic=f"topic-{number % 2}", born_timestamp=MIDNIGHT_MS + 5000 * number)
        for number in range(36)
    )
    growing.archive()


def test_maintain_joins_rows_and_answers_stay_the_same(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = growing.lake.root

    def answers() -> list[str]:
        found = []
        for options in ([], ["--window", "1m"], ["--by", "broker,queue,kind,tag"], ["--percentiles"]):
            assert tps.main(["--lake", lake, "--quiet", "--top", "0", *options]) == ExitCode.OK
            found.append(capsys.readouterr().out)
        return found

    before, rows = answers(), rows_of(growing.lake.uri("topic_minutes"))
    assert maintain.main(["--lake", lake, "--local", "--quiet"]) == ExitCode.OK
    after = rows_of(growing.lake.uri("topic_minutes"))
    assert len(after) == len({tuple(row[name] for name in KEY) for row in rows}) < len(rows)
    assert {row["run_id"] for row in after} == {"joined-4"}
    assert answers() == before
    assert backfill_minutes(growing.lake).messages == 0
    assert audit.main(["--lake", lake, "--local", "--quiet"]) == ExitCode.OK

    archive_more(growing)
    assert audit.main(["--lake", lake, "--local", "--quiet"]) == ExitCode.OK
    assert maintain.main(["--lake", lake, "--local", "--quiet"]) == ExitCode.OK
    assert covered_sequence(growing.lake) == 5
    assert sum(row["messages"] for row in rows_of(growing.lake.uri("topic_minutes"))) == growing.count
    assert audit.main(["--lake", lake, "--local", "--quiet"]) == ExitCode.OK


def test_rows_are_not_joined_if_a_run_is_not_counted(growing: GrowingLake) -> None:
    assert joined_run_id(growing.lake) == "joined-4"
    run = rows_of(growing.lake.uri("archive_runs"))[1]["run_id"]
    growing.lake.table("topic_minutes").delete(f"run_id = '{run}'")
    assert joined_run_id(growing.lake) is None
