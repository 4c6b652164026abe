"""An audit compares typed tables of topics with messages, by topic and hour, and says what mends a difference."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase.command import main as erase
from commitlake.jobs.evidence.command import main as evidence
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.topic_tables_check import TopicComparison, compare_topic_tables
from commitlake.pipelines.evidence.chain import read_documents
from commitlake.pipelines.topics.schema_history import record_topic_schema
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, prepared_lake, rows_of, shop_messages
from tests.support.typed_topics import follow_topic

TOPIC = "topic-00"
TABLE = f"topics/{TOPIC}"


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs, each of three days, whose typed table has followed both."""
    return prepared_lake(tmp_path, _archive_and_follow)


def _archive_and_follow(growing: GrowingLake) -> None:
    for seed in range(2):
        growing.write(shop_messages(90, days=3, seed=seed))
        growing.archive()
        follow_topic(growing.lake, TOPIC, _is_misfit)
    record_topic_schema(growing.lake, TOPIC, TOPIC, "{}", {}, "file")


def _is_misfit(offset: int) -> bool:
    return offset % 7 == 0


def compare(lake: Lake, span: AuditSpan | None = None) -> TopicComparison:
    """Return the comparison of the only typed table."""
    reading = lake.pin_versions()
    (found,) = compare_topic_tables(reading, read_lake_state(lake), span or AuditSpan(), ())
    return found


def replace_rows(lake: Lake, rows: pa.Table) -> None:
    """Write the rows of the typed table anew, as another program may; its progress stays."""
    write_deltalake(lake.uri(TABLE), rows, mode="overwrite")


def typed_rows(lake: Lake) -> pa.Table:
    """Return the rows of the typed table."""
    return DeltaTable(lake.uri(TABLE)).to_pyarrow_table()


def test_each_message_is_a_row_or_a_misfit(growing: GrowingLake) -> None:
    found = compare(growing.lake)
    assert (found.compared, found.differing, found.pending, found.erased, found.notes) == (True, 0, 0, 0, ())
    messages = [row for row in rows_of(growing.lake.uri("messages")) if row["topic"] == TOPIC]
    assert found.messages == len(messages) == found.rows + found.misfits
    assert found.misfits == sum(_is_misfit(row["physical_offset"]) for row in messages) > 0
    assert found.hours == len({row["store_timestamp"].replace(minute=0, second=0, microsecond=0) for row in messages})


def test_messages_that_are_not_followed_yet_are_no_difference(growing: GrowingLake) -> None:
    before = compare(growing.lake)
    growing.write(shop_messages(40, topics=2, seed=9))
    growing.archive()
    found = compare(growing.lake)
    assert (found.differing, found.pending, found.messages) == (0, 20, before.messages)
    newest = read_lake_state(growing.lake).version
    note = f"follows messages to version {found.followed} of {newest}: 'commitlake topics' adds 20 more messages"
    assert found.notes == [note]
    follow_topic(growing.lake, TOPIC)
    assert (compare(growing.lake).messages, compare(growing.lake).differing) == (before.messages + 20, 0)


def test_a_lost_row_is_a_difference_of_its_hour(growing: GrowingLake) -> None:
    rows = typed_rows(growing.lake)
    replace_rows(growing.lake, rows.slice(1))
    found = compare(growing.lake)
    hour = f"{rows['_store_timestamp'][0].as_py():%Y-%m-%dT%H:00:00Z}"
    assert (found.differing, found.missing, found.unexpected) == (1, 1, 0)
    (line,) = found.differences
    assert line.startswith(f"topic {TOPIC}, hour {hour}: expected ")


def test_a_row_twice_and_one_lost_in_another_hour_do_not_cancel_out(growing: GrowingLake) -> None:
    rows = typed_rows(growing.lake).sort_by("_store_timestamp")
    replace_rows(growing.lake, pa.concat_tables([rows.slice(1), rows.slice(len(rows) - 1)]))
    found = compare(growing.lake)
    assert (found.differing, found.missing, found.unexpected, found.rows) == (2, 1, 1, len(rows))


def test_rows_of_another_topic_are_unexpected(growing: GrowingLake) -> None:
    rows = typed_rows(growing.lake)
    others = rows.slice(0, 2).set_column(rows.schema.get_field_index("_topic"), "_topic", pa.array(["other"] * 2))
    replace_rows(growing.lake, pa.concat_tables([rows, others]))
    assert compare(growing.lake).unexpected == 2


def test_erased_messages_are_expected_in_no_table(growing: GrowingLake) -> None:
    before = compare(growing.lake)
    keys = {row["physical_offset"]: row["keys"] for row in rows_of(growing.lake.uri("messages"))}
    key = keys[typed_rows(growing.lake)["_physical_offset"][0].as_py()][0]
    asked = ["--key", key, "--reason", "asked", "--yes", "--quiet"]
    assert erase(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    found = compare(growing.lake)
    assert (found.differing, found.erased > 0) == (0, True)
    assert found.messages == before.messages - found.erased


def test_expired_hours_are_not_compared(growing: GrowingLake) -> None:
    first = min(row["_store_timestamp"] for row in typed_rows(growing.lake).to_pylist())
    days = (datetime.datetime.now(datetime.UTC).date() - first.date()).days - 1
    assert maintain.main(["--lake", growing.lake.root, "--keep", f"messages={days}d", "--quiet"]) == ExitCode.OK
    found = compare(growing.lake)
    assert (found.differing, found.compared) == (0, True)
    assert found.messages == sum(row["topic"] == TOPIC for row in rows_of(growing.lake.uri("messages")))


def test_a_span_limits_both_sides(growing: GrowingLake) -> None:
    times = pc.unique(typed_rows(growing.lake)["_store_timestamp"]).sort().to_pylist()
    found = compare(growing.lake, AuditSpan(times[3], times[9]))
    assert (found.differing, 0 < found.messages < compare(growing.lake).messages) == (0, True)


def test_a_topic_that_was_deleted_and_made_again_is_one_topic(growing: GrowingLake) -> None:
    growing.recreate_topics()
    growing.write(shop_messages(40, seed=5))
    growing.archive()
    follow_topic(growing.lake, TOPIC)
    assert compare(growing.lake).differing == 0


def test_a_table_of_two_topics_or_of_another_program_is_not_compared(growing: GrowingLake) -> None:
    write_deltalake(growing.lake.uri("topics/own"), pa.table({"id": [1]}))
    record_topic_schema(growing.lake, TOPIC, "topic-01", "{}", {}, "file")
    state = read_lake_state(growing.lake)
    own, typed = compare_topic_tables(growing.lake.pin_versions(), state, AuditSpan(), ())
    assert (own.compared, own.notes) == (False, ["is not compared: 'commitlake topics' has not made it"])
    assert typed.notes == ["is not compared: it had several topics (topic-00, topic-01)"]


def test_a_table_without_its_system_columns_is_a_difference(growing: GrowingLake) -> None:
    rows = typed_rows(growing.lake).drop_columns(["_topic"])
    write_deltalake(growing.lake.uri(TABLE), rows, mode="overwrite", schema_mode="overwrite")
    assert compare(growing.lake).differences == ["expected the columns _topic, which another program has removed"]


def test_the_audit_prints_the_comparison_and_the_command_that_mends_it(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--lake", growing.lake.root, "--quiet"]
    code = audit.main(arguments)
    printed = capsys.readouterr().out
    assert (code, TABLE in printed, "the same" in printed) == (ExitCode.OK, True, True)
    replace_rows(growing.lake, typed_rows(growing.lake).slice(1))
    page = growing.folder / "audit.html"
    assert audit.main([*arguments, "--html", str(page)]) == ExitCode.DAMAGE
    printed = " ".join(capsys.readouterr().out.split())
    assert f"commitlake topics --lake {growing.lake.root} --topics-file TOPICS_FILE --topic {TOPIC} --again" in printed
    assert TABLE in page.read_text()
    assert audit.main([*arguments, "--format", "json"]) == ExitCode.DAMAGE
    rows = json.loads(capsys.readouterr().out)["rows"]
    (of_topic,) = (row for row in rows if "followed" in row)
    assert (of_topic["table"], of_topic["missing"], of_topic["differing"]) == (TABLE, 1, 1)


def test_evidence_names_the_tables_with_their_versions(growing: GrowingLake) -> None:
    key = growing.folder / "evidence.pem"
    assert evidence(["key", "--out", str(key)]) == ExitCode.OK
    asked = ["--lake", growing.lake.root, "--evidence-key", str(key), "--quiet"]
    assert audit.main(asked) == ExitCode.OK
    replace_rows(growing.lake, typed_rows(growing.lake).slice(1))
    assert audit.main(asked) == ExitCode.DAMAGE
    facts = [json.loads(text)["payload"]["facts"]["topics"] for _, text in read_documents(growing.lake)]
    (before,), (after,) = facts
    found = compare(growing.lake)
    assert {name: after[name] for name in ("table", "topic", "version", "followed")} == {
        "table": TABLE,
        "topic": TOPIC,
        "version": found.version,
        "followed": found.followed,
    }
    assert (after["version"], after["rows"]) == (before["version"] + 1, before["rows"] - 1)
    assert [(each["compared"], each["differing"]) for each in (before, after)] == [(True, 0), (True, 1)]


def test_a_deleted_table_is_a_finding_and_the_audit_goes_on(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(growing.lake.uri(TABLE))
    assert audit.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.DAMAGE
    printed = capsys.readouterr().out
    assert "the table messages and the packs" in printed
    assert "1 table is damaged" in printed
