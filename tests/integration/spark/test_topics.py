"""Typed tables of topics: each message is once a row, once a misfit, or erased, whatever happens between runs."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake.connectors.lake.added_files import AddedFiles, readable_added_files
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.topic_tables_check import compare_topic_tables
from commitlake.pipelines.erasure.purge import purge_old_versions
from commitlake.pipelines.erasure.run import ErasureTarget, plan_erasure, run_erasure
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.topics import table_update
from commitlake.pipelines.topics.table_update import TopicMisfitError, TopicTableUpdater, TopicUpdate
from commitlake.pipelines.topics.topic_config import OnMisfit, TopicConfig, TopicConfigError
from commitlake.pipelines.transforms.typed_messages import parse_documents
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.columns import INT64, Column, Columns
from tests.support.erased_lakes import KEY, shop_messages, traces, write_lake
from tests.support.lakes import GrowingLake, rows_of
from tests.support.message_stores import message

COLUMNS = Columns([Column("id", INT64)])
MISFIT_TYPE = "struct<reason: string, field: string, expected: string, found: string>"
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": ["number", "null"]},
        "paid_at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "open": {"type": "boolean"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "extra": {},
    },
}
FIT = [
    b'{"id": 1}',
    b'{"id":2,"total":null,"paid_at":"2026-11-20T14:00:00.123456+08:00","day":"2026-11-30","open":true}',
    '{"id":3,"lines":[{"sku":"Größe \\"L\\" 北京","n":-5},{}],"extra":{"a":[1.00,"x"]}}'.encode(),
    b'{"id":4,"extra":"text","new":{"deep":12345678901234567890}}',
    b' {"id" : -9223372036854775808 , "total" : 1e-7 } ',
]
MISFIT = [
    (b"no json", "not_json"),
    (b'{"id": 1', "not_json"),
    (b'{"id": 1} {"id": 2}', "not_json"),
    (b'{"id": 1, "total": NaN}', "not_json"),
    (b'{"id": 1, "id": 2}', "repeated_name"),
    (b'{"id": "5"}', "wrong_type"),
    (b'{"total": 5}', "missing"),
    (b'{"id": 1, "total": 1' + b"0" * 400 + b"}", "out_of_range"),
    (b"\xff\xfe", "not_utf8"),
    (b"[" * 100_000, "too_deep"),
]


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store and a lake."""
    return GrowingLake(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> TopicConfig:
    """A topic with a schema."""
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    return TopicConfig("orders", "orders", tmp_path / "orders.json")


def archive(growing: GrowingLake, bodies: Sequence[bytes], topic: str = "orders") -> None:
    """Write messages with the given bodies to the store, and archive them."""
    growing.write(message(growing.count + n, topic, body=body) for n, body in enumerate(bodies))
    growing.archive()


def update(spark: SparkSession, lake: Lake, config: TopicConfig) -> TopicUpdate:
    """Update the table of a topic."""
    return TopicTableUpdater(spark, lake, config).update()


def typed(lake: Lake, config: TopicConfig) -> list[dict[str, object]]:
    """Return the rows of a topic's table, by their place in the log."""
    return sorted(rows_of(lake.uri(config.lake_table)), key=lambda row: row["_physical_offset"])


def test_each_message_is_a_row_or_a_misfit(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    archive(growing, [*FIT, *(body for body, _ in MISFIT)])
    archive(growing, [b'{"id": 1}'], topic="others")
    done = update(spark, growing.lake, config)
    assert (done.rows, done.misfits, done.with_unknown) == (len(FIT), len(MISFIT), 1)
    rows = typed(growing.lake, config)
    assert [row["id"] for row in rows] == [1, 2, 3, 4, -(1 << 63)]
    assert str(rows[1]["paid_at"]) == "2026-11-20 06:00:00.123456+00:00"
    assert (str(rows[1]["day"]), rows[1]["open"], rows[1]["total"]) == ("2026-11-30", True, None)
    assert rows[2]["lines"] == [{"sku": 'Größe "L" 北京', "n": -5}, {"sku": None, "n": None}]
    assert [row["extra"] for row in rows] == [None, None, '{"a":[1.00,"x"]}', '"text"', None]
    assert rows[3]["_unknown"] == [("new", '{"deep":12345678901234567890}')]
    assert rows[4]["total"] == 1e-7
    misfits = sorted(rows_of(growing.lake.uri("topic_misfits")), key=lambda row: row["physical_offset"])
    assert [row["reason"] for row in misfits] == [reason for _, reason in MISFIT]


def test_rows_lead_back_to_their_messages(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    archive(growing, FIT)
    update(spark, growing.lake, config)
    messages = growing.lake.table("messages").to_pyarrow_table()
    for row in typed(growing.lake, config):
        (found,) = messages.filter(pc.field("physical_offset") == row["_physical_offset"]).to_pylist()
        names = [name for name in row if name in {f"_{column}" for column in found}]
        assert len(names) == 9
        assert {name: row[name] for name in names} == {name: found[name[1:]] for name in names}


def test_a_run_takes_what_is_new(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    for numbers in ([1, 2], [], [3]):
        archive(growing, [b'{"id": %d}' % number for number in numbers])
        assert update(spark, growing.lake, config).rows == len(numbers)
        assert update(spark, growing.lake, config).rows == 0
    assert [row["id"] for row in typed(growing.lake, config)] == [1, 2, 3]


def test_misfits_are_added_by_the_next_run_and_by_the_same_schema(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(growing, [b'{"id": 1}', b'{"id": "2"}'])
    with monkeypatch.context() as patch:
        patch.setattr(TopicTableUpdater, "_add_misfits", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            update(spark, growing.lake, config)
    assert growing.lake.find("topic_misfits") is None
    # By this schema, the misfit would fit.
    config.schema_file.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}))
    archive(growing, [b'{"id": "3"}'])
    with pytest.raises(TopicConfigError, match="expected the type that it has"):
        update(spark, growing.lake, config)
    (misfit,) = rows_of(growing.lake.uri("topic_misfits"))
    assert (misfit["reason"], misfit["field"], misfit["found"]) == ("wrong_type", "id", "a string of 1 characters")
    config.schema_file.write_text(json.dumps(SCHEMA))
    assert update(spark, growing.lake, config).misfits == 1
    assert [row["id"] for row in typed(growing.lake, config)] == [1]
    assert len(rows_of(growing.lake.uri("topic_misfits"))) == 2


def test_a_topic_that_is_to_fail_adds_nothing(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    strict = TopicConfig("orders", "orders", config.schema_file, on_misfit=OnMisfit.FAIL)
    archive(growing, [b'{"id": 1}', b'{"id": "2"}'])
    with pytest.raises(TopicMisfitError, match="wrong_type of id: expected integer, found a string of 1 characters"):
        update(spark, growing.lake, strict)
    assert growing.lake.find("topics/orders") is None


def test_new_fields_become_columns(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    archive(growing, [b'{"id": 1, "note": "a"}'])
    update(spark, growing.lake, config)
    wider = {**SCHEMA, "properties": {**SCHEMA["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    config.schema_file.write_text(json.dumps(wider))
    archive(growing, [b'{"id": 2, "note": "b"}'])
    update(spark, growing.lake, config)
    rows = typed(growing.lake, config)
    assert [(row["note"], row["_unknown"], row["_schema"]) for row in rows] == [
        (None, [("note", '"a"')], 1),
        ("b", None, 2),
    ]


def test_dropped_and_renamed_fields(spark: SparkSession, growing: GrowingLake, config: TopicConfig) -> None:
    chosen = TopicConfig(
        "orders", "sold", config.schema_file, drop=frozenset({"total", "card"}), rename={"id": "order_id"}
    )
    archive(growing, [b'{"id": 1, "total": 5, "card": "1234"}'])
    update(spark, growing.lake, chosen)
    (row,) = typed(growing.lake, chosen)
    assert row["order_id"] == 1
    assert {"id", "total", "card"}.isdisjoint(row)
    assert row["_unknown"] is None


def test_a_table_whose_files_are_gone_is_completed(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(growing, [b'{"id": 1}', b"x"])
    update(spark, growing.lake, config)
    archive(growing, [b'{"id": 2}', b"y"])
    read = readable_added_files
    # As after a vacuum of files that were not read yet: all files of the table are given, and marked as such.
    monkeypatch.setattr(
        table_update,
        "readable_added_files",
        lambda lake, _: AddedFiles(read(lake, -1).files, read(lake, -1).version, from_scratch=True),
    )
    done = update(spark, growing.lake, config)
    assert (done.rows, done.misfits) == (1, 1)
    assert [row["id"] for row in typed(growing.lake, config)] == [1, 2]
    assert len(rows_of(growing.lake.uri("topic_misfits"))) == 2


@pytest.mark.parametrize("text", ['{"id":"no number"}', '{"id":1', "[1]", '{"id":1e400}'])
def test_what_spark_cannot_parse_is_a_misfit(spark: SparkSession, text: str) -> None:
    # The judge lets none of these pass.
    judged = spark.createDataFrame([(text, None)], "document string, misfit struct<reason: string>")
    misfit = parse_documents(judged.withColumn("misfit", F.lit(None).cast(MISFIT_TYPE)), COLUMNS).select(
        "misfit.reason"
    )
    assert [row["reason"] for row in misfit.collect()] == ["not_parsed"]


def test_erasures_reach_rows_and_misfits(spark: SparkSession, tmp_path: Path) -> None:
    growing = write_lake(tmp_path)
    (tmp_path / "all.json").write_text(json.dumps({"type": "object", "properties": {"name": {"type": "string"}}}))
    (tmp_path / "none.json").write_text(json.dumps({"type": "object", "properties": {"number": {"type": "string"}}}))
    fits, misfits = (
        TopicConfig("topic-1", "fit", tmp_path / "all.json"),
        TopicConfig("topic-0", "no", tmp_path / "none.json"),
    )
    fitting = update(spark, growing.lake, fits)
    refused = update(spark, growing.lake, misfits)
    assert (fitting.rows, refused.misfits) == (50, 50)
    assert traces(Path(growing.lake.uri("topics")))
    place = ErasureTarget(growing.lake, "1")
    secret, plain = plan_erasure(place, KeysToErase([KEY])), plan_erasure(place, KeysToErase(["order-18"]))
    assert {count.table for count in secret.tables if count.rows} >= {"messages", "topics/fit"}
    for plan in (secret, plain):
        run_erasure(place, plan, "a test", datetime.timedelta(days=7), lambda _: None)
    purge_old_versions(growing.lake, datetime.timedelta(0), datetime.datetime.now(datetime.UTC), is_only_user=True)
    assert not traces(Path(growing.lake.uri("topics")))
    offsets = {row["physical_offset"] for row in rows_of(growing.lake.uri("topic_misfits"))}
    assert (len(typed(growing.lake, fits)), len(offsets)) == (49, 49)
    # Neither comes back with the next messages.
    growing.write(shop_messages(10, first=growing.count))
    growing.archive()
    assert (update(spark, growing.lake, fits).rows, update(spark, growing.lake, misfits).misfits) == (5, 5)


def test_erased_messages_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    growing = write_lake(tmp_path)
    place = ErasureTarget(growing.lake, "1")
    run_erasure(place, plan_erasure(place, KeysToErase([KEY])), "a test", datetime.timedelta(days=7), lambda _: None)
    (tmp_path / "all.json").write_text(json.dumps({"type": "object", "properties": {"name": {"type": "string"}}}))
    config = TopicConfig("topic-1", "fit", tmp_path / "all.json")
    assert update(spark, growing.lake, config).rows == 49
    assert update(spark, growing.lake, config).rows == 0


def test_all_messages_are_read_again_to_add_what_is_missing(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig
) -> None:
    archive(growing, [b'{"id": 1}', b"x", b'{"id": 2}'])
    update(spark, growing.lake, config)
    table = growing.lake.table(config.lake_table)
    table.delete("id = 1")  # by another program
    assert update(spark, growing.lake, config).rows == 0
    updater = TopicTableUpdater(spark, growing.lake, config)
    done = updater.update(reads_all=True)
    assert (done.rows, done.misfits) == (1, 0)
    assert (updater.update(reads_all=True).rows, updater.update().rows) == (0, 0)
    assert [row["id"] for row in typed(growing.lake, config)] == [1, 2]
    assert len(rows_of(growing.lake.uri("topic_misfits"))) == 1


def test_a_table_that_is_made_again_finds_its_misfits(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(growing, [b'{"id": 1}', b"x"])
    update(spark, growing.lake, config)
    archive(growing, [b'{"id": 2}', b"y"])
    update(spark, growing.lake, config)
    shutil.rmtree(growing.lake.uri(config.lake_table))
    assert maintain(["--lake", growing.lake.root, "--repair", "--quiet"]) == ExitCode.DAMAGE
    archive(growing, [b'{"id": 3}', b"z"])
    with monkeypatch.context() as patch:
        patch.setattr(TopicTableUpdater, "_add_misfits", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            update(spark, growing.lake, config)
    assert update(spark, growing.lake, config).misfits == 1
    assert [row["id"] for row in typed(growing.lake, config)] == [1, 2, 3]
    assert len(rows_of(growing.lake.uri("topic_misfits"))) == 3
    (found,) = compare_topic_tables(growing.lake.pin_versions(), read_lake_state(growing.lake), AuditSpan(), ())
    assert (found.compared, found.differing, found.rows, found.misfits) == (True, 0, 3, 3)


def test_maintain_merges_the_files_that_spark_wrote(
    spark: SparkSession, growing: GrowingLake, config: TopicConfig
) -> None:
    for numbers in ([1, 2], [3]):
        archive(growing, [b'{"id": %d, "lines": [{"sku": "a"}], "total": 5}' % number for number in numbers])
        update(spark, growing.lake, config)
    rows = typed(growing.lake, config)
    assert maintain(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    assert len(growing.lake.table(config.lake_table).file_uris()) == 1
    assert typed(growing.lake, config) == rows
    table = spark.read.format("delta").load(growing.lake.uri(config.lake_table))
    assert [row["lines"][0]["sku"] for row in table.collect()] == ["a"] * 3
    archive(growing, [b'{"id": 4}'])
    assert update(spark, growing.lake, config).rows == 1
