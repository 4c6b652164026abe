"""Tests of `commitlake query` on a small lake: each condition, each output format, and errors."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import fcntl
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from commitlake.jobs.query import command as query
from commitlake.pipelines.message_keys.progress import APPLICATION_ID
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS, QUARANTINE
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.messages import MESSAGES, PARTITION_COLUMNS
from tests.support.query_lakes import FIRST_DAY, ROOT, UTC, Row, message, table_of

pytestmark = pytest.mark.usefixtures("own_folder")

COUNT = 36
ODD_KEYS = (
    "it's",
    "''",
    "back\\slash",
    "trailing\\",
    "订单-1",
    "😀",
    "100%",
    "a_b",
    '"quoted"',
    "a b",
    "$1",
    "\\'; drop table messages; --",
    "' or 1=1 --",
    "{}",
    "?",
    "@x",
    "-- no",
)
INJECTIONS = ("'; drop table messages; --", "' or 1=1 --", "' or '1'='1", "\\' or 1=1 --", "x') or (1=1", "/*", "%' --")


ORDINARY = [message(number) for number in range(COUNT)]
ODD = [
    message(COUNT + number, topic="odd", keys=[key, "shared"], properties={key: key, "control": "\x1b[2J\a\n\t|"})
    for number, key in enumerate(ODD_KEYS)
]
ROWS = ORDINARY + ODD


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all three tables."""
    root = tmp_path_factory.mktemp("lake")
    for start in range(0, len(ROWS), 10):
        table = table_of(ROWS[start : start + 10], MESSAGES)
        write_deltalake(str(root / "messages"), table, mode="append", partition_by=list(PARTITION_COLUMNS))
    bad = {
        "broker": "broker-a",
        "segment": "00000000000000000000",
        "start_offset": 5,
        "end_offset": 9,
        "reason": "magic",
        "expected": "DAA320A7",
        "found": "\x1b[31m",
        "first_bytes": b"\0\xff",
        "parser_version": "1",
        "sequence": 1,
    }
    write_deltalake(str(root / "quarantine"), table_of([bad, bad | {"start_offset": 1}], QUARANTINE))
    now = datetime.datetime(2026, 11, 20, tzinfo=UTC)
    run = {"sequence": 1, "run_id": "r", "started_at": now, "finished_at": now, "stores": 1, "messages": 9, "bytes": 9}
    rest = {"refused": 1, "recovered": False, "parser_version": "1"}
    write_deltalake(str(root / "archive_runs"), table_of([run | rest], ARCHIVE_RUNS))
    return root


@dataclasses.dataclass(frozen=True)
class Answer:
    """Result of one run of `query`."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Row]:
        """Return the rows of `--output jsonl`."""
        return [json.loads(line) for line in self.out.split("\n") if line]

    @property
    def offsets(self) -> list[int]:
        """Return the physical offsets of the rows."""
        return [row["physical_offset"] for row in self.rows]


Ask = Callable[..., Answer]


@pytest.fixture
def ask(lake: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A function that asks the lake with these arguments, for JSON lines."""

    def run(*arguments: object) -> Answer:
        given = [str(argument) for argument in arguments]
        where = [] if "--lake" in given else ["--lake", str(lake)]
        form = [] if "--output" in given else ["--output", "jsonl"]
        capsys.readouterr()
        try:
            code = query.main([*where, *form, *given])
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = capsys.readouterr()
        return Answer(int(code), out, err)

    return run


def offsets_where(condition: Callable[[Row], bool]) -> list[int]:
    """Return the offsets of the messages that meet a condition, in the order of the job: oldest first."""
    found = [row for row in ROWS if condition(row)]
    return [
        row["physical_offset"]
        for row in sorted(found, key=lambda row: (row["store_timestamp"], row["broker"], row["physical_offset"]))
    ]


def always(_: Row) -> bool:
    """Return True."""
    return True


def never(_: Row) -> bool:
    """Return False."""
    return False


def keys_of(row: Row) -> list[str]:
    """Return a row's keys, or an empty list if they are null."""
    return row["keys"] or []


def at(day: int, hour: int, minute: int = 0) -> datetime.datetime:
    """Return a time in the lake's days."""
    return FIRST_DAY + datetime.timedelta(days=day, hours=hour, minutes=minute)


# --- conditions ---


@pytest.mark.some_cases(11)
@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ([], always),
        (["--topic", "orders"], lambda row: row["topic"] == "orders"),
        (["--topic", "orders", "--topic", "payments"], lambda row: row["topic"] in ("orders", "payments")),
        (["--topic", "it's \\odd"], lambda row: row["topic"] == "it's \\odd"),
        (["--topic", "%RETRY%g"], lambda row: row["topic"] == "%RETRY%g"),
        (["--topic", "%"], never),
        (["--queue", "2"], lambda row: row["queue_id"] == 2),
        (["--queue", "0"], lambda row: row["queue_id"] == 0),
        (["--kind", "retry"], lambda row: row["kind"] == "retry"),
        (["--kind", "normal", "--kind", "retry"], always),
        (["--key", "order-7"], lambda row: "order-7" in keys_of(row)),
        (["--key", "user-1"], lambda row: "user-1" in keys_of(row)),
        (["--key", "order-7", "--key", "order-8"], lambda row: {"order-7", "order-8"} & set(keys_of(row))),
        (["--key", "order"], never),
        (["--key", ""], never),
        (["--broker", "broker-b"], lambda row: row["broker"] == "broker-b"),
        (["--broker", "broker-a", "--broker", "broker-b"], always),
        (["--from", "2026-11-20"], lambda row: row["store_timestamp"] >= at(1, 0)),
        (["--to", "2026-11-20"], lambda row: row["store_timestamp"] < at(1, 0)),
        (["--from", "2026-11-20T12:30", "--to", "2026-11-21T12:30"],
         lambda row: at(1, 12, 30) <= row["store_timestamp"] < at(2, 12, 30)),
        (["--from", "2026-11-20T12:30+08:00"], lambda row: row["store_timestamp"] >= at(1, 4, 30)),
        (["--from", "2026-11-20T12:30:00.001"], lambda row: row["store_timestamp"] > at(1, 12, 30)),
        (["--from", str(int(at(1, 12, 30).timestamp() * 1000))], lambda row: row["store_timestamp"] >= at(1, 12, 30)),
        (["--where", "body_size > 1"], always),
        (["--where", "reconsume_times = 1"], lambda row: row["reconsume_times"] == 1),
        (["--where", "reconsume_times = 1 or topic = 'orders'"],
         lambda row: row["reconsume_times"] == 1 or row["topic"] == "orders"),
        (["--where", "properties['city'] = 'Berlin'"], lambda row: row["properties"].get("city") == "Berlin"),
        (["--where", "properties['city'] = '北京'"], lambda row: row["properties"].get("city") == "北京"),
        (["--where", "keys is null"], lambda row: row["keys"] is None),
        (["--where", "array_contains(keys, 'shared')"], lambda row: "shared" in keys_of(row)),
        (["--where", "tags like 'Tag%'"], lambda row: row["tags"] is not None),
        (["--where", "unique_key is null"], lambda row: row["unique_key"] is None),
        (["--where", "store_date = date '2026-11-20'"], lambda row: row["store_timestamp"].date() == at(1, 0).date()),
    ],
)  # fmt: skip
def test_a_condition_selects_matching_rows(ask: Ask, arguments: list[str], condition: Callable[[Row], bool]) -> None:
    answer = ask("--limit", 0, *arguments)
    assert (answer.code, answer.offsets) == (0, offsets_where(condition))


def test_all_conditions_must_hold(ask: Ask) -> None:
    answer = ask(
        "--topic", "orders", "--topic", "payments", "--queue", 1, "--kind", "normal", "--broker", "broker-a",
        "--key", "user-1", "--key", "user-0", "--from", "2026-11-19T12:05", "--to", "2026-11-21T13:50",
        "--where", "reconsume_times = 0 or reconsume_times = 1", "--limit", 0,
    )  # fmt: skip
    expected = offsets_where(
        lambda row: (
            row["topic"] in ("orders", "payments")
            and row["queue_id"] == 1
            and row["broker"] == "broker-a"
            and bool({"user-1", "user-0"} & set(keys_of(row)))
            and at(0, 12, 5) <= row["store_timestamp"] < at(2, 13, 50)
        )
    )
    assert expected
    assert answer.offsets == expected


def test_or_in_where_does_not_undo_the_other_conditions(ask: Ask) -> None:
    answer = ask("--topic", "orders", "--where", "1 = 0 or 1 = 1", "--limit", 0)
    assert answer.offsets == offsets_where(lambda row: row["topic"] == "orders")


def test_the_end_is_exclusive_and_the_begin_inclusive(ask: Ask) -> None:
    answer = ask("--from", "2026-11-20T12:10", "--to", "2026-11-20T12:20")
    assert answer.offsets == [13_000]


def test_a_time_range_around_all_rows_gives_all_rows(ask: Ask) -> None:
    assert len(ask("--from", "1970-01-01", "--to", "2200-01-01", "--limit", 0).rows) == len(ROWS)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--topic", "ordes"], "the lake has no message of the topic 'ordes'. Did you mean 'orders'?"),
        (["--topic", "orders", "--queue", "7"], "no message in queue 7 of 'orders'; it has messages in queues 0, 1, 2"),
        (["--queue", "7", "--count"], "no message in queue 7 of any topic; it has messages in queues 0, 1, 2"),
        (["--queue", "1", "--to", "2000-01-01"], "the lake has messages stored from 2026-11-19T12:00:00Z to 2026"),
        (["--queue", "1", "--key", "none"], ""),
    ],
)
def test_an_empty_answer_names_the_topic_queue_or_time_that_the_lake_does_not_have(
    ask: Ask, options: list[str], warning: str
) -> None:
    answer = ask(*options)
    assert answer.code == 0
    assert warning in answer.err
    assert ("warning" in answer.err) == bool(warning)


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [("0001-01-01", "9999-12-31", len(ROWS)), ("0800-01-01", "1500-01-01", 0), ("2500-01-01", "2600-01-01", 0)],
)
def test_times_far_in_the_past_and_future_are_accepted(ask: Ask, first: str, last: str, count: int) -> None:
    answer = ask("--from", first, "--to", last, "--limit", 0)
    assert (answer.code, len(answer.rows)) == (0, count), answer.err


def test_times_relative_to_now_are_accepted(ask: Ask) -> None:
    assert ask("--from", "-2h", "--to", "now").code == 0
    assert ask("--from=-2h").code == 0


@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_key_finds_only_its_message(ask: Ask, key: str) -> None:
    answer = ask("--key", key)
    assert (answer.code, answer.offsets) == (0, offsets_where(lambda row: key in keys_of(row)))
    assert len(answer.offsets) == 1


@pytest.mark.some_cases(9)
@pytest.mark.parametrize("option", ["--topic", "--key", "--broker", "--id"])
@pytest.mark.parametrize("value", INJECTIONS)
def test_values_are_not_interpreted_as_sql(ask: Ask, lake: Path, option: str, value: str) -> None:
    expected = offsets_where(lambda row: option == "--key" and value in keys_of(row))
    answer = ask(option, value, "--limit", 0)
    assert (answer.code, answer.offsets) == (0, expected), answer.err
    assert (lake / "messages" / "_delta_log").is_dir()


# --- ids ---


def test_an_offset_id_finds_its_record(ask: Ask) -> None:
    for row in (ROWS[3], ROWS[9]):  # IPv4 and IPv6
        answer = ask("--id", row["msg_id"])
        assert answer.offsets == [row["physical_offset"]]
        assert ask("--id", row["msg_id"].lower()).offsets == answer.offsets


def test_a_client_id_finds_all_its_records(ask: Ask) -> None:
    assert ask("--id", ROWS[7]["unique_key"]).offsets == [7000]


def test_an_unknown_id_finds_no_messages(ask: Ask) -> None:
    for unknown in ("0A00000100002A9F00000000000FFFFF", "nothing", "", "0A00000100002A9F0000000000001X00"):
        answer = ask("--id", unknown)
        assert (answer.code, answer.out) == (0, ""), answer.err
        assert "no matching messages" in answer.err


def test_an_id_with_a_false_condition_finds_no_messages(ask: Ask) -> None:
    assert ask("--id", ROWS[3]["msg_id"], "--topic", "nothing").offsets == []


def test_csv_for_a_unique_key_has_one_header(ask: Ask) -> None:
    answer = ask("--id", ROWS[7]["unique_key"], "--output", "csv", "--columns", "physical_offset")
    assert answer.out.splitlines() == ["physical_offset", "7000"]


# --- limits ---


def test_a_limit_that_cuts_the_result_is_reported(ask: Ask) -> None:
    answer = ask("--limit", 5)
    assert answer.offsets == offsets_where(always)[:5]
    assert "5 rows, and there are more: --limit 5 cut the result; --limit 0 gives all" in answer.err


def test_a_limit_that_just_fits_is_not_reported(ask: Ask) -> None:
    answer = ask("--limit", len(ROWS))
    assert len(answer.rows) == len(ROWS)
    assert "more" not in answer.err
    assert f"{len(ROWS)} rows" in answer.err


def test_a_limit_of_zero_means_no_limit(ask: Ask) -> None:
    assert len(ask("--limit", 0).rows) == len(ROWS)


def test_a_limit_below_zero_is_refused(ask: Ask) -> None:
    answer = ask("--limit", -1)
    assert (answer.code, answer.out) == (2, "")
    assert "--limit: '-1': expected a whole number, 0 or more" in answer.err


def test_quiet_prints_only_rows(ask: Ask) -> None:
    answer = ask("--quiet", "--limit", 1)
    assert (answer.err, len(answer.rows)) == ("", 1)


@pytest.mark.parametrize("form", ["jsonl", "csv", "table"])
def test_an_empty_result_is_not_an_error(ask: Ask, form: str) -> None:
    answer = ask("--topic", "nothing", "--output", form)
    assert answer.code == 0
    assert "no matching messages" in answer.err
    assert len(answer.out.splitlines()) == (1 if form == "csv" else 0)


# --- output ---


def expected_json(row: Row) -> Row:
    """Return a row as in JSON lines and CSV."""

    def plain(value: object) -> object:
        if isinstance(value, datetime.datetime):
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return value

    return {name: plain(value) for name, value in row.items() if name != "store_date"}


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order of the job."""
    return sorted(rows, key=lambda row: (row["store_timestamp"], row["broker"], row["physical_offset"]))


def test_json_lines_have_every_column_and_value(ask: Ask) -> None:
    assert ask("--limit", 0).rows == [expected_json(row) for row in in_order(ROWS)]


def test_csv_has_every_column_and_value(ask: Ask) -> None:
    answer = ask("--limit", 0, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.out, newline="")))
    expected = [expected_json(row) for row in in_order(ROWS)]
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert set(row) == set(wanted)
        for name, text in row.items():
            value = wanted[name]
            assert (
                json.loads(text) == value
                if isinstance(value, list | dict)
                else text == str("" if value is None else value)
            )


def test_columns_are_selected_in_the_given_order(ask: Ask) -> None:
    answer = ask("--columns", "tags, physical_offset ,topic", "--limit", 1)
    assert list(answer.rows[0]) == ["tags", "physical_offset", "topic"]
    assert ask("--columns", "store_date", "--limit", 1).rows == [{"store_date": "2026-11-19"}]


def test_a_column_named_twice_is_printed_once_or_refused(ask: Ask) -> None:
    answer = ask("--columns", "tags,tags", "--limit", 1)
    if answer.code == 0:
        assert list(answer.rows[0]) == ["tags"]
    else:
        assert (answer.code, answer.out) == (2, "")


def test_a_table_has_a_line_for_each_row_and_no_control_characters(ask: Ask) -> None:
    answer = ask("--topic", "odd", "--output", "table", "--columns", "keys,properties,store_timestamp")
    lines = answer.out.splitlines()
    assert len([line for line in lines if "shared" in line]) == len(ODD)
    for line in lines:
        assert not [character for character in line if ord(character) < 32 or character == "\x7f"]
    for key in ODD_KEYS:
        assert any(key in line for line in lines)


def test_a_table_shows_the_main_columns(ask: Ask) -> None:
    header = ask("--output", "table", "--limit", 1, "--full").out.splitlines()[0]
    for name in query.SHORT_COLUMNS:
        assert name in header


def test_markup_in_a_value_stays_text(lake: Path, tmp_path: Path, ask: Ask) -> None:
    row = message(1, tags="[bold]x[/bold] [link=http://a]y", topic=":smile:")
    write_deltalake(str(tmp_path / "l" / "messages"), table_of([row], MESSAGES), partition_by=["store_date"])
    answer = ask("--lake", tmp_path / "l", "--output", "table", "--columns", "tags,topic")
    assert "[bold]x[/bold] [link=http://a]y" in answer.out
    assert ":smile:" in answer.out


def test_rows_with_null_times_and_dates_are_printed(tmp_path: Path, ask: Ask) -> None:
    rows = [message(1, store_timestamp=None), message(2)]
    write_deltalake(str(tmp_path / "l" / "messages"), table_of(rows, MESSAGES), partition_by=["store_date"])
    for form in ("jsonl", "csv", "table"):
        assert ask("--lake", tmp_path / "l", "--output", form).code == 0
    assert sorted(ask("--lake", tmp_path / "l").offsets) == [1000, 2000]


def test_other_tables_can_be_queried_with_where(ask: Ask) -> None:
    answer = ask("--table", "quarantine")
    assert [row["start_offset"] for row in answer.rows] == [1, 5]
    assert answer.rows[0]["first_bytes"] == "AP8="
    assert [row["start_offset"] for row in ask("--table", "quarantine", "--where", "start_offset = 5").rows] == [5]
    assert "\x1b" not in ask("--table", "quarantine", "--output", "table").out
    assert ask("--table", "archive_runs").rows[0]["sequence"] == 1


@pytest.mark.some_cases(7)
@pytest.mark.parametrize("table", LAKE_TABLES)
def test_each_table_can_be_queried_without_rows_and_with_rows(ask: Ask, tmp_path: Path, table: str) -> None:
    columns = LAKE_TABLES[table].columns
    write_deltalake(str(tmp_path / "l" / "messages"), table_of([], MESSAGES))
    if table != "messages":
        write_deltalake(str(tmp_path / "l" / table), table_of([], columns))
    asked = ["--lake", tmp_path / "l", "--table", table, "--columns", columns.names[0], "--quiet"]
    assert ask(*asked) == Answer(0, "", "")
    write_deltalake(str(tmp_path / "l" / table), table_of([dict.fromkeys(columns.names)] * 2, columns), mode="append")
    assert [*map(list, ask(*asked).rows)] == [[columns.names[0]]] * 2


# --- refusals ---


def assert_refused(answer: Answer, *words: str) -> None:
    """Check for exit code 2, no output, and an error with these words."""
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert "commitlake query: error: " in answer.err
    assert "Traceback" not in answer.err
    for word in words:
        assert word in answer.err


@pytest.mark.parametrize(
    "where",
    [
        "nothing = 1",
        "topic =",
        "((",
        "topic = 'a",
        "1; drop table messages",
        "no_function(topic)",
        "topic = 1 +",
    ],
)
def test_an_invalid_predicate_is_refused_with_the_columns(ask: Ask, where: str) -> None:
    for form in ("jsonl", "csv", "table"):
        answer = ask("--where", where, "--output", form)
        assert_refused(answer, "the query is invalid: ", "columns are: broker, physical_offset")


@pytest.mark.parametrize("where", [") --", "false) OR (true"])
def test_a_predicate_that_would_leave_other_conditions_out_is_refused(ask: Ask, where: str) -> None:
    assert_refused(ask("--topic", "none", "--where", where), f"found a ')' without its '(' in {where!r}")


def test_a_predicate_that_cannot_be_evaluated_is_refused(ask: Ask) -> None:
    for form in ("jsonl", "csv", "table"):
        answer = ask("--where", "cast(topic as int) = 1", "--output", form)
        assert_refused(answer, "the query is invalid: ", "Cannot cast")
    assert_refused(ask("--where", "topic"), "the query is invalid: ")


@pytest.mark.parametrize("columns", ["nothing", "topic,nothing", 'topic" from messages --', "*", "Topic"])
def test_an_unknown_column_is_refused(ask: Ask, columns: str) -> None:
    assert_refused(ask("--columns", columns), "there is no column", "columns are: broker")


@pytest.mark.parametrize("columns", ["", ",", " , "])
def test_an_empty_list_of_columns_is_refused(ask: Ask, columns: str) -> None:
    assert_refused(ask("--columns", columns), "--columns: expected the name of at least one column")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "2026-11-21", "--to", "2026-11-20"], "is not before"),
        (["--from", "2026-11-20", "--to", "2026-11-20"], "is not before"),
        (["--from", "yesterday"], "'yesterday' is not a time"),
        (["--kind", "other"], "invalid choice"),
        (["--output", "xml"], "invalid choice"),
        (["--engine", "duckdb"], "invalid choice"),
        (["--table", "users"], "invalid choice"),
        (["--queue", "x"], "expected a whole number, 0 or more"),
        (["--limit", "x"], "expected a whole number, 0 or more"),
        (["--table", "quarantine", "--topic", "a"], "--table and --topic cannot be used together"),
        (["--table", "quarantine", "--queue", "0"], "--table and --queue cannot be used together"),
        (["--table", "archive_runs", "--from", "2026-11-20"], "--table and --from cannot be used together"),
        (["--nothing"], "--nothing"),
    ],
)
def test_a_wrong_option_is_refused(ask: Ask, arguments: list[str], words: str) -> None:
    assert_refused(ask(*arguments), words)


def test_a_missing_lake_is_refused(ask: Ask, tmp_path: Path) -> None:
    assert_refused(ask("--lake", tmp_path / "nowhere"), "does not exist", "commitlake archive")


def test_a_folder_that_is_not_a_lake_is_refused(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    assert_refused(ask("--lake", tmp_path / "photos"), "is not a lake", "commitlake archive")
    assert_refused(ask("--lake", tmp_path / "photos", "--table", "quarantine"), "is not a lake")


def test_a_file_in_place_of_a_lake_is_refused(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert_refused(ask("--lake", tmp_path / "file"), "expected the folder of a lake, found a file")


def test_a_table_that_does_not_exist_yet_is_refused(ask: Ask, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "l" / "messages"), table_of(ROWS[:1], MESSAGES), partition_by=["store_date"])
    assert_refused(ask("--lake", tmp_path / "l", "--table", "archive_runs"), "no table 'archive_runs' yet")


@pytest.mark.parametrize("table", ["quarantine", "gaps", "profiles", "quality_results"])
def test_a_table_that_is_created_with_its_first_row_is_empty_before(ask: Ask, tmp_path: Path, table: str) -> None:
    write_deltalake(str(tmp_path / "l" / "messages"), table_of(ROWS[:1], MESSAGES), partition_by=["store_date"])
    asked = ["--lake", tmp_path / "l", "--table", table]
    answer = ask(*asked)
    assert (answer.code, answer.out) == (0, "")
    assert "no matching rows" in answer.err
    assert ask(*asked, "--count", "--quiet") == Answer(0, "0\n", "")
    assert ask(*asked, "--output", "csv", "--quiet").out.startswith("broker,") == (table != "quality_results")
    assert_refused(ask(*asked, "--columns", "nope"), "there is no column 'nope'")


def test_missing_data_files_are_reported_without_a_trace(ask: Ask, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "l" / "messages"), table_of(ROWS[:1], MESSAGES), partition_by=["store_date"])
    for file in (tmp_path / "l" / "messages").rglob("*.parquet"):
        file.unlink()
    answer = ask("--lake", tmp_path / "l")
    assert answer.code == 3
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert file.name in answer.err
    assert "found no such file. 'commitlake maintain" in answer.err
    assert "commitlake query: error: " in answer.err


def test_a_truncated_data_file_is_damage(ask: Ask, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "l" / "messages"), table_of(ROWS[:1], MESSAGES), partition_by=["store_date"])
    (file,) = (tmp_path / "l" / "messages").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    answer = ask("--lake", tmp_path / "l")
    assert (answer.code, answer.out) == (3, "")
    assert file.name in answer.err


def test_messages_with_fewer_versions_than_message_keys_followed_are_damage(ask: Ask, tmp_path: Path) -> None:
    root = tmp_path / "l"
    write_deltalake(str(root / "messages"), table_of(ROWS[:1], MESSAGES), partition_by=["store_date"])
    write_deltalake(
        str(root / "message_keys"),
        pa.table({"number": [1]}),
        commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION_ID, 1)]),
    )
    answer = ask("--lake", root, "--count")
    assert (answer.code, answer.out) == (3, "")
    assert "message_keys was updated up to version 1" in answer.err


def test_a_missing_lake_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        query.main([])
    assert ended.value.code == 2
    assert "--lake" in capsys.readouterr().err


# --- as a process ---


def test_query_imports_no_large_package_and_needs_no_jvm(lake: Path) -> None:
    program = (
        "import sys\nfrom commitlake.jobs.cli import main as cli\ncode = cli.main(sys.argv[1:])\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "query", "--lake", str(lake), "--key", "order-7", "--output", "jsonl"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["physical_offset"] == 7000


def test_a_reader_that_closes_the_pipe_ends_the_query_without_an_error(lake: Path) -> None:
    arguments = ["query", "--lake", str(lake), "--limit", "0", "--output", "jsonl", "--quiet"]
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The output does not fit into the pipe, so the process is still writing when its reader closes it.
        room = fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        first = process.stdout.raw.read(room)  # type: ignore[attr-defined]
        process.stdout.close()
        assert (process.wait(120), process.stderr.read()) == (141, b"")
    assert json.loads(first.splitlines()[0])
    whole = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True).stdout
    assert len(whole) > 2 * room


def test_several_ids_and_queues_are_alternatives(ask: Ask) -> None:
    rows = [json.loads(line) for line in ask("--output", "jsonl", "--topic", "orders", "--limit", 0).out.splitlines()]
    first, last = rows[0], rows[-1]
    for ids in ([first["msg_id"], last["unique_key"] or last["msg_id"]], [last["msg_id"], first["msg_id"], "none"]):
        options = [part for each in ids for part in ("--id", each)]
        found = [json.loads(line)["msg_id"] for line in ask("--output", "jsonl", *options).out.splitlines()]
        assert found == [first["msg_id"], last["msg_id"]]
    queues = {row["queue_id"] for row in rows}
    counts = [int(ask("--topic", "orders", "--count", "--queue", each).out) for each in queues]
    together = [part for each in queues for part in ("--queue", each)]
    assert int(ask("--topic", "orders", "--count", *together).out) == sum(counts) == len(rows)


def test_a_variable_for_spark_does_not_concern_a_look_up_in_hbase(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "hbase_lag_sentence", lambda *_: "HBase lacks some versions")
    monkeypatch.setenv("COMMITLAKE_SPARK", "true")
    monkeypatch.setattr(query, "query_spark", lambda *_: pytest.fail("Spark was asked"))
    answer = ask("--via", "hbase", "--topic", "odd", "--limit", 1)
    assert (answer.code, len(answer.rows)) == (0, 1)
    assert "the lake is queried instead" in answer.err


@pytest.mark.parametrize("option", ["--hbase", "--hbase-table"])
def test_an_empty_option_of_hbase_is_as_none(ask: Ask, option: str) -> None:
    assert ask(option, "", "--limit", 1).code == 0
    refused = ask(option, "x", "--limit", 1)
    assert refused.code == 2
    assert f"{option} needs --via hbase" in refused.err
