"""Tests of the command `topics` without Spark: what is wrong is found before a session starts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from commitlake.jobs.topics import command
from commitlake.jobs.topics.command import main
from commitlake.pipelines.topics.table_summary import TopicTableSummary
from commitlake.pipelines.topics.table_update import TopicMisfitError, TopicTableUpdater, TopicUpdate
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake
from tests.support.message_stores import message

AT = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with a message."""
    growing = GrowingLake(tmp_path)
    growing.write([message()])
    growing.archive()
    return growing.lake.root


@pytest.fixture
def topics_file(tmp_path: Path) -> Path:
    """A file of two topics."""
    path = tmp_path / "topics.toml"
    path.write_text('[topics.orders]\nschema = "o"\n[topics.paid]\nschema = "p"\non_misfit = "quarantine"')
    return path


def use_updates(patch: pytest.MonkeyPatch, updates: dict[str, TopicUpdate | Exception]) -> None:
    """Replace the updates on Spark by given results, by topic."""

    def update(self: TopicTableUpdater, *, reads_all: bool) -> TopicUpdate:
        result = updates[self.config.topic]
        if isinstance(result, Exception):
            raise result
        return result

    patch.setattr("commitlake.jobs.arguments.runner.get_spark_session", lambda *_: None)
    patch.setattr("commitlake.pipelines.topics.table_update.TopicTableUpdater.update", update)
    patch.setattr(
        "commitlake.pipelines.topics.table_summary.summarize_topic_table",
        lambda *_: TopicTableSummary(7, {"not_json": 2}, AT),
    )


def test_wrong_file_and_topic_are_named(lake: str, topics_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", lake, "--topics-file", str(topics_file), "--topic", "other"]) == ExitCode.USAGE
    assert "expected a table [topics.other], found orders, paid" in capsys.readouterr().err
    topics_file.write_text("[topics.orders]\nmasks = 1")
    assert main(["--lake", lake, "--topics-file", str(topics_file)]) == ExitCode.USAGE
    assert f"{topics_file}: topics.orders.masks: expected one of" in capsys.readouterr().err


def test_misfits_end_with_exit_code_3_unless_they_are_to_be_kept(
    lake: str, topics_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    updates: dict[str, TopicUpdate | Exception] = {
        topic: TopicUpdate(topic, topic, 5, 4, 2, 1, 1) for topic in ("orders", "paid")
    }
    use_updates(monkeypatch, updates)
    arguments = ["--lake", lake, "--topics-file", str(topics_file)]
    assert main([*arguments, "--topic", "paid"]) == ExitCode.OK
    assert main([*arguments, "--topic", "orders"]) == ExitCode.DAMAGE
    shown = capsys.readouterr()
    assert "orders: 2 messages do not fit the schema; this shows why: commitlake query --lake" in shown.err
    assert "orders: 1 new row has fields that the schema lacks; they are in _unknown" in shown.err


def test_other_topics_are_updated_after_one_fails(
    lake: str, topics_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_updates(monkeypatch, {"orders": TopicMisfitError("it does not fit"), "paid": TopicUpdate("paid", "paid", 5, 4)})
    assert main(["--lake", lake, "--topics-file", str(topics_file), "--format", "csv"]) == ExitCode.DAMAGE
    shown = capsys.readouterr()
    names = shown.out.splitlines()[0].split(",")
    assert {column.key for column in command.COLUMNS} <= set(names)
    assert shown.out.splitlines()[1].startswith("orders,topics/orders,0,0,0,7,2,")
    assert shown.out.splitlines()[1].endswith(",it does not fit")
    assert shown.out.splitlines()[2].startswith("paid,topics/paid,4,0,0,7,2,")
    assert "commitlake topics: warning: it does not fit" in shown.err
    assert main(["--lake", lake, "--topics-file", str(topics_file), "--format", "json"]) == ExitCode.DAMAGE
    row = json.loads(capsys.readouterr().out)["rows"][1]
    assert (row["newest"], row["misfits_by_reason"]) == ("2026-11-20T14:00:00.000Z", {"not_json": 2})


def test_learn_prints_a_schema_and_writes_it_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(message(number, body=b'{"id": %d}' % number) for number in range(5))
    growing.archive()
    topics_file, schema_file = tmp_path / "topics.toml", tmp_path / "orders.json"
    topics_file.write_text('[topics.orders]\nschema = "orders.json"\n[topics.none]\nschema = "none.json"')
    arguments = ["learn", "--lake", growing.lake.root, "--topics-file", str(topics_file), "--topic"]
    assert main([*arguments, "orders"]) == ExitCode.OK
    shown = capsys.readouterr()
    expected = {"type": "object", "properties": {"id": {"type": "integer", "x-share": 1.0}}}
    assert json.loads(shown.out) == expected
    assert "orders: 5 documents read" in shown.err
    assert not schema_file.exists()
    assert main([*arguments, "orders", "--apply"]) == ExitCode.OK
    assert json.loads(schema_file.read_text()) == expected
    assert main([*arguments, "none"]) == ExitCode.USAGE
    assert "topic none: expected JSON objects with fields, found none in 0 messages" in capsys.readouterr().err


def test_topics_with_changes_have_no_schema_to_learn(
    lake: str, topics_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics_file.write_text('[topics.orders]\nschema = "o"\nformat = "maxwell-json"\nsource_table = "shop.orders"')
    assert main(["learn", "--lake", lake, "--topics-file", str(topics_file)]) == ExitCode.USAGE
    assert "topic orders: expected a topic with documents, found maxwell-json" in capsys.readouterr().err


def test_summary_counts_current_rows_or_says_why_there_are_none(
    lake: str, topics_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics_file.write_text('[topics.orders]\nschema = "o"\nformat = "maxwell-json"\nsource_table = "shop.orders"')
    use_updates(monkeypatch, {"orders": TopicUpdate("orders", "orders", 5, 4)})
    arguments = ["--lake", lake, "--topics-file", str(topics_file), "--format", "json"]
    assert main(arguments) == ExitCode.OK
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rows"][0]["current_rows"] is None
    assert "orders: no table of current rows: the events of one source table do not say a primary key" in shown.err
    summary = TopicTableSummary(7, {}, AT, current_rows=3, deleted_rows=2)
    monkeypatch.setattr("commitlake.pipelines.topics.table_summary.summarize_topic_table", lambda *_: summary)
    assert main(arguments) == ExitCode.OK
    shown = capsys.readouterr()
    row = json.loads(shown.out)["rows"][0]
    assert (row["current_rows"], row["deleted_rows"], shown.err) == (3, 2, "")
