"""Tables, messages and bodies of a lake as Arrow tables."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import NoTableError
from commitlake.connectors.lake.packs import body_batches
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import QueryError
from commitlake.pipelines.analysis.lake import AnalysisLake, Body
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.dead_letters import DEAD_LETTERS
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.analysed_lakes import BODIES, analysed_lake, dead_letters_lake
from tests.support.lakes import GrowingLake

TAGS = list(BODIES)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake that nobody changes."""
    return analysed_lake(tmp_path_factory.mktemp("analysed"))


@pytest.fixture
def lake(growing: GrowingLake) -> AnalysisLake[pa.Table]:
    """The lake, as an analyst has it."""
    return commitlake.open(growing.lake.root)


def tags_of(table: pa.Table) -> list[str]:
    """Return the tags of messages, in the order of `BODIES`."""
    return sorted(table.column("tags").to_pylist(), key=TAGS.index)


def test_tables_have_their_declared_columns(lake: AnalysisLake[pa.Table]) -> None:
    for name in ("messages", "topic_minutes", "archive_runs"):
        table = lake.table(name)
        assert table.schema.equals(arrow_schema(LAKE_TABLES[name].columns))
        assert table.num_rows
    with pytest.raises(LakeError, match="there is no table 'massages': expected one of messages, "):
        lake.table("massages")
    with pytest.raises(NoTableError, match="no table 'replays' yet"):
        lake.table("replays")


def test_columns_that_an_older_lake_lacks_are_null(growing: GrowingLake, tmp_path: Path) -> None:
    rows = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table()
    folder = tmp_path / "older"
    write_deltalake(str(folder / "messages"), rows.drop_columns(["origin_topic", "format"]))
    found = commitlake.open(str(folder)).table("messages")
    assert found.schema.equals(arrow_schema(MESSAGES))
    assert found.column("origin_topic").null_count == found.num_rows == len(BODIES)
    older = commitlake.open(str(folder))
    assert older.messages(where="origin_topic IS NULL AND tags <> 'text'").num_rows == len(BODIES) - 1


def test_a_folder_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        commitlake.open(str(tmp_path)).messages()


def test_messages_are_chosen_by_all_conditions(lake: AnalysisLake[pa.Table]) -> None:
    assert tags_of(lake.messages()) == TAGS
    assert tags_of(lake.messages(topic="orders")) == TAGS[::2]
    assert tags_of(lake.messages(topic=["orders", "payments"], queue=[0, 1], kind="normal")) == [
        tag for number, tag in enumerate(TAGS) if number % 3 < 2
    ]
    assert tags_of(lake.messages(queue=2, broker="broker-a")) == TAGS[2::3]
    assert tags_of(lake.messages(key="order-3")) == [TAGS[3], TAGS[7]]
    assert tags_of(lake.messages(key="order-3", id="U7")) == [TAGS[7]]
    assert tags_of(lake.messages(id=["U1", "U2"], tag=["text", "empty"])) == ["text"]
    assert tags_of(lake.messages(where="tags LIKE '%zlib' -- a comment")) == ["zlib", "broken-zlib"]
    since, until = "2023-11-15T00:00:50.017", "2023-11-15T01:01:40.018+01:00"
    assert tags_of(lake.messages(since=since, until=until)) == TAGS[1:3]


def test_wrong_conditions_are_named(lake: AnalysisLake[pa.Table]) -> None:
    with pytest.raises(UsageError, match=r"since: expected a time in ISO 8601, such as .*, found 'yesterday'"):
        lake.messages(since="yesterday")
    with pytest.raises(QueryError, match="tagz"):
        lake.messages(where="tagz = 'x'")
    with pytest.raises(LakeError, match="the table messages has no column 'tag': expected some of broker, "):
        lake.messages(columns=["tag"])
    with pytest.raises(TypeError, match="topics"):
        lake.messages(topics=["orders"])  # type: ignore[call-arg]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": []}, "key: expected at least one value, found none"),
        ({"queue": "12"}, "queue: expected whole numbers, found '1'"),
        ({"topic": [1]}, "topic: expected texts, found 1"),
        ({"kind": "dead"}, "kind: expected some of normal, .*, found 'dead'"),
        ({"since": datetime.date(2026, 1, 1)}, "since: expected a time in ISO 8601"),
        ({"until": datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=5)))}, "until: "),
        ({"body": "xml"}, "body: expected one of bytes, text, json, found 'xml'"),
        ({"columns": []}, "columns: expected at least one value"),
        ({"columns": ["tags", "tags"]}, "columns: expected each column once, found tags, tags"),
    ]
    for arguments, reason in wrong:
        with pytest.raises(UsageError, match=reason):
            lake.messages(**arguments)
    with pytest.raises(UsageError, match="by: expected each column once, found topic, topic"):
        lake.tps(by=["topic", "topic"])


def test_a_predicate_cannot_leave_the_other_conditions_out(lake: AnalysisLake[pa.Table]) -> None:
    asked: list[Callable[..., pa.Table]] = [lake.messages, lake.tps, lake.dead_letters]
    for ask in asked:
        with pytest.raises(UsageError, match=r"where: expected a condition, found a '\)' without its '\('"):
            ask(topic="none", where="false) OR (true")
    assert lake.messages(topic="none", where="tags <> ') OR (' -- )").num_rows == 0


def test_json_of_many_bytes_is_not_checked(lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_batches, "MAX_JSON_BYTES", 4)
    rows = lake.messages(tag="zlib", body="json").to_pylist()
    assert [row["body_error"] for row in rows] == ["expected at most 4 bytes of JSON, found 13"]


@pytest.mark.parametrize(
    ("form", "errors"),
    [
        ("bytes", {"broken-zlib": "zlib"}),
        ("text", {"broken-zlib": "zlib", "not-utf8": "expected UTF-8, found the byte 0xff at 0"}),
        (
            "json",
            {
                "broken-zlib": "zlib",
                "not-utf8": "expected UTF-8, found the byte 0xff at 0",
                "text": "expected JSON: Expecting value",
                "nan": "expected JSON: expected valid JSON, found NaN",
                "nested": "expected JSON: lists or objects that are nested too deeply",
                "empty": "expected JSON: Expecting value",
            },
        ),
    ],
)
def test_bodies_have_a_form_or_an_error(lake: AnalysisLake[pa.Table], form: Body, errors: dict[str, str]) -> None:
    table = lake.messages(columns=["tags"], body=form)
    assert table.schema.names == ["tags", "body", "body_error"]
    assert table.schema.field("body").type == (pa.binary() if form == "bytes" else pa.string())
    rows = {row["tags"]: row for row in table.to_pylist()}
    assert len(rows) == len(BODIES)
    for tag, body in BODIES.items():
        row = rows[tag]
        if tag in errors:
            assert row["body"] is None
            assert errors[tag] in row["body_error"]
        else:
            sent = b'{"amount": 1}' if tag == "zlib" else body
            assert (row["body"], row["body_error"]) == (sent if form == "bytes" else sent.decode(), None)


def test_no_messages_have_the_same_columns(lake: AnalysisLake[pa.Table]) -> None:
    assert lake.messages(topic="none").schema.equals(arrow_schema(MESSAGES))
    for form in ("bytes", "text"):
        some, none = (lake.messages(topic=topic, body=form) for topic in ("orders", "none"))
        assert none.num_rows == 0
        assert none.schema.equals(some.schema)


def test_packs_may_be_elsewhere(growing: GrowingLake, tmp_path: Path) -> None:
    copy = growing.copy_to(tmp_path / "copy")
    shutil.move(copy.lake.bodies_root, tmp_path / "packs")
    lake = commitlake.open(copy.lake.root, bodies=str(tmp_path / "packs"))
    (body,) = lake.messages(tag="text", body="text").column("body").to_pylist()
    assert body == BODIES["text"].decode()


def test_dead_letters_have_their_group_origin_and_reason(tmp_path: Path) -> None:
    lake = commitlake.open(dead_letters_lake(tmp_path).lake.root)
    table = lake.dead_letters()
    assert table.schema.equals(arrow_schema(DEAD_LETTERS))
    found = {row["group"]: (row["origin_topic"], row["reason"], row["replayed"]) for row in table.to_pylist()}
    assert found == {
        "billing": ("orders", "no such account", False),
        "shipping": ("it's", None, True),
        "audit": (None, None, False),
    }
    by_topic = lake.dead_letters(topic=["it's", "none"], body="json").to_pylist()
    assert [(row["group"], row["body"]) for row in by_topic] == [("shipping", '{"amount": 7}')]
    assert lake.dead_letters(group=["billing", "audit"], key="order-1").column("group").to_pylist() == ["billing"]
    assert lake.dead_letters(since="2023-11-15T00:01:00").num_rows == 2
    with pytest.raises(UsageError, match="dead_letters cannot select messages by kinds"):
        lake.dead_letters(kind="dlq")
