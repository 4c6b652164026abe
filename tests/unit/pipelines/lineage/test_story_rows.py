"""Tables of the histories of many keys have a row for each step, with what the story of each key says."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.pipelines.analysis.lake import AnalysisLake
from commitlake.pipelines.lineage import story_rows
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.lineage import LINEAGE
from tests.support.lineage_lakes import KEY, order_lake

NO_KEY = "none"


@pytest.fixture
def lake(tmp_path: Path) -> AnalysisLake[pa.Table]:
    """A lake in which an order was delayed, failed twice and was consumed."""
    order_lake(tmp_path)
    return commitlake.open(str(tmp_path / "lake"))


def test_each_step_is_a_row_with_its_causes_and_outcomes(lake: AnalysisLake[pa.Table]) -> None:
    story = lake.lineage(key=KEY)
    rows = lake.lineage(keys=[KEY]).to_pylist()
    for row, step in zip(rows, story.steps, strict=True):
        assert (row["key"], row["id"], row["kind"], row["at"]) == (KEY, step.id, step.kind, step.at)
        assert (row["lane"], row["title"], row["text"]) == (step.lane, step.title, step.text)
        if step.record is not None:
            assert (row["broker"], row["physical_offset"]) == (step.record.broker, step.record.physical_offset)
            assert row["matched"] == step.record.matched
        assert (row["consumption"] is None) == (step.consumption is None)
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    causes = [(cause["id"], row["id"], cause["kind"], cause["gap_ms"]) for row in rows for cause in row["causes"]]
    millisecond = datetime.timedelta(milliseconds=1)
    assert sorted(causes, key=repr) == sorted(
        (
            (edge.source, edge.target, edge.kind, None if edge.gap is None else edge.gap // millisecond)
            for edge in story.edges
        ),
        key=repr,
    )
    outcomes = [(row["id"], each["group"], each["state"], each["text"]) for row in rows for each in row["outcomes"]]
    assert outcomes == [(each.step, each.group, each.state, each.text) for each in story.outcomes] != []
    consumed = [row["consumption"]["group"] for row in rows if row["consumption"] is not None]
    assert consumed == [step.consumption.group for step in story.steps if step.consumption is not None] != []
    assert {tuple(row["cautions"]) for row in rows} == {tuple(story.cautions)}


def test_a_key_without_messages_has_a_row_without_a_step(lake: AnalysisLake[pa.Table]) -> None:
    found = lake.lineage(keys=NO_KEY)
    assert found.schema.equals(arrow_schema(LINEAGE))
    (row,) = found.to_pylist()
    assert (row["key"], row["number"], row["id"], row["causes"], row["outcomes"]) == (NO_KEY, None, None, [], [])


def test_keys_may_be_a_column_of_a_table(lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = lake.lineage(keys=[KEY, NO_KEY])
    only = pa.table({"order_no": [KEY, None, NO_KEY, KEY]})
    assert lake.lineage(keys=only).equals(expected)
    assert lake.lineage(keys=only.rename_columns(["key"]).append_column("n", [[1, 2, 3, 4]])).equals(expected)
    empty = lake.lineage(keys=pa.table({"key": pa.array([], pa.string())}))
    assert empty.equals(arrow_schema(LINEAGE).empty_table())
    monkeypatch.setattr(story_rows, "_TABLE_ROWS", 1)
    assert lake.lineage(keys=[KEY, NO_KEY, KEY]).combine_chunks().equals(expected.combine_chunks())


def test_wrong_keys_are_refused(lake: AnalysisLake[pa.Table]) -> None:
    with pytest.raises(UsageError, match="expected one column, or a column 'key', found a, b"):
        lake.lineage(keys=pa.table({"a": ["x"], "b": ["y"]}))
    with pytest.raises(UsageError, match="expected a column of texts, found the type int64"):
        lake.lineage(keys=pa.table({"key": [1]}))
    with pytest.raises(UsageError, match="keys: expected texts, found 7"):
        lake.lineage(keys=[7])
    with pytest.raises(UsageError, match=r"keys: expected texts or a pyarrow\.Table, found _Foreign"):
        lake.lineage(keys=_Foreign())
    with pytest.raises(UsageError, match="key: expected none with keys, found 'order-1'"):
        lake.lineage(keys=[KEY], key="order-1")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="limit: expected 1 or more"):
        lake.lineage(keys=[KEY], limit=0)


class _Foreign:
    """A table of another library."""

    columns = ("key",)
