"""Tests of maintain with typed tables of topics: merging, expiry with the messages, and repair."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.topic_expiry import expire_topic_rows
from commitlake.pipelines.topics.progress import read_topic_progress
from commitlake.pipelines.topics.schema_history import record_topic_schema
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.columns import TEXT, Column, Columns
from tests.support.lakes import GrowingLake, data_files, prepared_lake, rows_of, shop_messages
from tests.support.table_damages import damage
from tests.support.typed_topics import DOCUMENT, follow_topic

TOPIC = "topic-00"
TABLE = f"topics/{TOPIC}"
FIRST_DAY = datetime.date(2023, 11, 15)
WIDER = Columns([*DOCUMENT, Column("note", TEXT)])


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of three runs, each of three days, whose typed table got a column before the third."""
    return prepared_lake(tmp_path, _archive_and_follow)


def _archive_and_follow(growing: GrowingLake) -> None:
    for seed in range(3):
        growing.write(shop_messages(90, days=3, seed=seed))
        growing.archive()
        follow_topic(growing.lake, TOPIC, lambda offset: offset % 7 == 0, WIDER if seed == 2 else DOCUMENT)
    record_topic_schema(growing.lake, TOPIC, TOPIC, "{}", {}, "file")


def run(lake: Lake, *more: str) -> int:
    """Return the exit code of a run."""
    return maintain.main(["--lake", lake.root, "--quiet", *more])


def test_small_files_are_merged_and_later_vacuumed(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    uri = growing.lake.uri(TABLE)
    before, progress = rows_of(uri), read_topic_progress(growing.lake.table(TABLE))
    assert (len(before) > 40, len(data_files(uri))) == (True, 3)
    assert maintain.main(["--lake", growing.lake.root]) == ExitCode.OK
    assert f"{TABLE}: 3 files, " in capsys.readouterr().err
    assert (rows_of(uri), len(data_files(uri))) == (before, 1)
    assert read_topic_progress(growing.lake.table(TABLE)) == progress
    growing.write(shop_messages(20, seed=9))
    growing.archive()
    follow_topic(growing.lake, TOPIC)
    assert len(rows_of(uri)) == len(before) + 4


def test_rows_expire_with_their_messages(growing: GrowingLake) -> None:
    growing.write(shop_messages(50, topics=1, days=200))
    growing.archive()
    follow_topic(growing.lake, TOPIC)  # a file with rows of 200 days, as a table that is made later has
    kept = FIRST_DAY + datetime.timedelta(days=40)
    days = (datetime.datetime.now(datetime.UTC).date() - kept).days
    assert run(growing.lake, "--keep", f"messages={days}d") == ExitCode.OK
    assert read_expiries(growing.lake.table("messages")) == dict.fromkeys(("messages", "topics", "bodies"), kept)
    rows, messages = rows_of(growing.lake.uri(TABLE)), rows_of(growing.lake.uri("messages"))
    assert len(rows) == 40
    assert {row["_physical_offset"] for row in rows} == {row["physical_offset"] for row in messages}


def test_a_row_is_kept_at_most_a_month_too_long(growing: GrowingLake) -> None:
    files = read_table_files(growing.lake.table(TABLE))
    later = FIRST_DAY + datetime.timedelta(days=2)
    assert expire_topic_rows(growing.lake, TABLE, later, dry_run=False).rows == 0
    assert read_table_files(growing.lake.table(TABLE)) == files
    count = len(rows_of(growing.lake.uri(TABLE)))
    found = expire_topic_rows(growing.lake, TABLE, later + datetime.timedelta(days=1), dry_run=True)
    assert (found.rows, found.count) == (count, 3)


def test_rows_of_a_table_without_a_schema_do_not_expire(growing: GrowingLake) -> None:
    shutil.copytree(growing.lake.uri(TABLE), growing.lake.uri("topics/newest_state"))
    count = len(rows_of(growing.lake.uri(TABLE)))
    assert run(growing.lake, "--keep", "messages=30d") == ExitCode.OK
    assert rows_of(growing.lake.uri(TABLE)) == []
    assert len(rows_of(growing.lake.uri("topics/newest_state"))) == count


def test_typed_rows_can_be_kept_longer_than_messages(growing: GrowingLake) -> None:
    count = len(rows_of(growing.lake.uri(TABLE)))
    assert run(growing.lake, "--keep", "messages=30d", "--keep", "topics=36500d") == ExitCode.OK
    assert rows_of(growing.lake.uri("messages")) == []
    assert len(rows_of(growing.lake.uri(TABLE))) == count


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("what", "how"), [("entry", "cut"), ("entry", "deleted"), ("file", "cut"), ("file", "deleted")]
)
def test_a_damaged_table_is_repaired_or_made_again(growing: GrowingLake, what: str, how: str) -> None:
    lake = growing.lake
    uri, rows = lake.uri(TABLE), rows_of(lake.uri(TABLE))
    misfits = rows_of(lake.uri("topic_misfits"))
    entry, file = max(Path(uri).glob("_delta_log/*.json")), Path(min(DeltaTable(uri).file_uris()))
    damage(entry if what == "entry" else file, how)
    assert run(lake, "--repair", "--dry-run") == ExitCode.DAMAGE
    assert run(lake, "--repair") == (ExitCode.OK if what == "entry" else ExitCode.DAMAGE)
    assert (lake.find(TABLE) is None) == (what == "file")
    assert run(lake, "--repair") == ExitCode.OK
    if what == "entry":
        assert read_topic_progress(lake.table(TABLE)).version >= 0
    follow_topic(lake, TOPIC, lambda offset: offset % 7 == 0, WIDER)
    assert sorted(row["_physical_offset"] for row in rows_of(uri)) == sorted(row["_physical_offset"] for row in rows)
    assert {row["physical_offset"] for row in rows_of(lake.uri("topic_misfits"))} == {
        row["physical_offset"] for row in misfits
    }


def test_a_deleted_table_is_missed_until_a_repair(growing: GrowingLake) -> None:
    shutil.rmtree(growing.lake.uri(TABLE))
    with pytest.raises(LogDamagedError, match="log"):
        growing.lake.find(TABLE)
    assert run(growing.lake, "--repair") == ExitCode.DAMAGE
    assert growing.lake.find(TABLE) is None
    assert run(growing.lake, "--repair") == ExitCode.OK


def test_a_table_of_lost_messages_is_made_again(growing: GrowingLake) -> None:
    damage(max(Path(growing.lake.uri("messages")).glob("_delta_log/*.json")), "cut")
    assert run(growing.lake, "--repair") == ExitCode.DAMAGE
    assert growing.lake.find(TABLE) is None


def test_a_table_of_another_program_is_maintained_or_left(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pa.table({"id": [1, 2], "day": ["a", "b"]})
    write_deltalake(growing.lake.uri("topics/own"), own, partition_by=["day"])
    write_deltalake(growing.lake.uri("topics/own"), own, mode="append")
    for _ in range(2):
        write_deltalake(growing.lake.uri("topics/newer"), own, mode="append")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["featureOfNextYear"]}
    entry = Path(growing.lake.uri("topics/newer")) / "_delta_log" / "00000000000000000002.json"
    entry.write_text(json.dumps({"protocol": protocol}) + "\n")
    assert maintain.main(["--lake", growing.lake.root, "--keep", "messages=36500d"]) == ExitCode.OK
    assert len(data_files(growing.lake.uri("topics/own"))) == 2
    printed = capsys.readouterr().err
    assert "topics/own: 4 files" in printed
    assert "  not maintained: " in printed
    assert "featureOfNextYear" in printed
    assert "bodies: " in printed
    assert len(rows_of(growing.lake.uri("topics/own"))) == 4
