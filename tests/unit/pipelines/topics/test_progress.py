"""Tests of the progress of topics' tables, their schemas, and what they have, as their logs record it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.topics.progress import (
    TopicProgress,
    misfits_application_id,
    read_misfits_version,
    read_topic_progress,
)
from commitlake.pipelines.topics.schema_history import read_topic_schema, record_topic_schema
from commitlake.pipelines.topics.table_summary import summarize_topic_table
from commitlake.pipelines.topics.table_update import check_is_additive
from commitlake.pipelines.topics.topic_config import TopicConfig, TopicConfigError
from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns
from commitlake.schemas.tables.topics import PLACE, TOPIC_MISFITS

CONFIG = TopicConfig("orders", "sold", Path("orders.json"))


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake without tables."""
    return Lake(str(tmp_path_factory.mktemp("lake")))


def write_table(lake: Lake, name: str, rows: pa.Table, numbers: dict[str, int]) -> None:
    """Append rows to a table, with application transactions."""
    transactions = [Transaction(application, number) for application, number in numbers.items()]
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(lake.uri(name), rows, mode="append", commit_properties=properties)


def test_progress_is_read_as_it_was_written(lake: Lake) -> None:
    assert read_topic_progress(lake.find(CONFIG.lake_table)) == TopicProgress(-1, -1, -1, 0)
    for progress in (TopicProgress(0, -1, -1, 1), TopicProgress(5, 0, 5, 2)):
        rows = pa.table({"id": pa.array([1], pa.int64())})
        write_table(lake, CONFIG.lake_table, rows, progress.transaction_numbers())
        assert read_topic_progress(lake.table_at(CONFIG.lake_table)) == progress


def test_progress_of_misfits_is_that_of_each_table(lake: Lake) -> None:
    assert read_misfits_version(lake.find("topic_misfits"), "sold") == -1
    rows = arrow_schema(TOPIC_MISFITS).empty_table()
    write_table(lake, "topic_misfits", rows, {misfits_application_id("sold"): 6})
    found = lake.table_at("topic_misfits")
    assert (read_misfits_version(found, "sold"), read_misfits_version(found, "paid")) == (5, -1)


def test_schemas_are_numbered_for_each_table(lake: Lake) -> None:
    assert read_topic_schema(lake, "sold") is None
    first = record_topic_schema(lake, "sold", "orders", "{}", {}, "file")
    again = record_topic_schema(lake, "sold", "orders", "{}", {}, "file")
    renamed = record_topic_schema(lake, "sold", "orders", "{}", {"id": "order_id"}, "file")
    other = record_topic_schema(lake, "paid", "payments", "{}", {}, "file")
    assert [each.number for each in (first, again, renamed, other)] == [1, 1, 2, 1]
    assert read_topic_schema(lake, "sold") == renamed
    assert read_topic_schema(lake, "sold", 1) == first


def test_summary_counts_rows_and_misfits(lake: Lake) -> None:
    assert summarize_topic_table(lake, CONFIG).rows == 0
    schema = arrow_schema(Columns([Column("id", INT64), *PLACE]))
    write_table(lake, CONFIG.lake_table, pa.Table.from_pylist([{"id": 1}, {"id": 2}], schema), {})
    misfits = [{"topic_table": "sold", "reason": reason} for reason in ("missing", "not_json", "not_json")]
    misfits.append({"topic_table": "paid", "reason": "missing"})
    write_table(lake, "topic_misfits", pa.Table.from_pylist(misfits, arrow_schema(TOPIC_MISFITS)), {})
    found = summarize_topic_table(lake, CONFIG)
    assert (found.rows, found.misfits, found.newest) == (2, {"not_json": 2, "missing": 1}, None)


def test_columns_of_another_type_are_refused(lake: Lake) -> None:
    write_table(lake, CONFIG.lake_table, pa.table({"id": pa.array([1], pa.int64())}), {})
    table = lake.table_at(CONFIG.lake_table)
    check_is_additive(None, Columns([Column("id", TEXT)]), CONFIG)
    check_is_additive(table, Columns([Column("id", INT64), Column("note", TEXT)]), CONFIG)
    with pytest.raises(TopicConfigError, match=r'the column id of topics/sold: .* that it has, "long", found "string"'):
        check_is_additive(table, Columns([Column("id", TEXT)]), CONFIG)
