"""Tests of `tps`: rates from a lake, compared with a plain loop; times not archived; wrong options."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.tps import command as tps
from commitlake.jobs.tps.notes import rate_columns
from commitlake.pipelines.tps import minute_counts, minute_rows, rates
from commitlake.pipelines.tps.coverage import Coverage, TimeSpan
from commitlake.pipelines.tps.rates_query import MESSAGES, RatesQuestion
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.tables.archive_runs import GAPS
from commitlake.schemas.tables.messages import MESSAGES as MESSAGES_SCHEMA
from tests.support.earlier_archives import without_topic_minutes
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, rows_of
from tests.support.logs import new_message, records
from tests.support.source_tree import ROOT

MIDNIGHT = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)
MINUTE_MS = 60_000
MINUTES = 60
Ask = Callable[..., tuple[int, list[dict[str, Any]], str]]


def messages() -> list[NewMessage]:
    """Return messages of an hour: `orders` twice a minute, `payments` in each tenth; none in minutes 20 to 29."""
    found: list[NewMessage] = []
    for minute in range(MINUTES):
        if 20 <= minute < 30:
            continue
        born_ms = MIDNIGHT_MS + minute * MINUTE_MS
        topics = ["orders", "orders", *(["payments"] if minute % 10 == 0 else [])]
        for number, topic in enumerate(topics):
            found.append(new_message(len(found), topic=topic, queue_id=number % 2, born_timestamp=born_ms + number))
    return found


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of that hour, archived in two runs."""
    growing = GrowingLake(tmp_path_factory.mktemp("tps"))
    sent = messages()
    for part in (sent[:40], sent[40:]):
        growing.write(part)
        growing.archive()
    return growing


@pytest.fixture
def ask(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask for rows as JSON lines."""

    def ask(*arguments: str, lake: str = growing.lake.root) -> tuple[int, list[dict[str, Any]], str]:
        capsys.readouterr()
        code = tps.main(["--lake", lake, "--output", "jsonl", *arguments])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return ask


def at(minute: int) -> str:
    return f"{MIDNIGHT + datetime.timedelta(minutes=minute):%Y-%m-%dT%H:%M:%S}Z"


def test_each_topic_is_counted_over_all_time(ask: Ask, growing: GrowingLake) -> None:
    code, rows, printed = ask()
    counts = Counter(message.topic for message in messages())
    assert code == ExitCode.OK
    assert [(row["topic"], row["messages"]) for row in rows] == counts.most_common()
    orders = rows[0]
    assert orders["messages_per_s"] == round(counts["orders"] / 3600, 3)
    assert (orders["peak_per_s"], orders["peak_at"]) == (round(2 / 60, 3), at(0))
    assert "from topic_minutes" in printed


@pytest.mark.parametrize("by", ["topic,queue", "none", "tag,kind", "broker"])
def test_counting_in_parts_gives_the_same_rows(ask: Ask, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    _, whole, _ = ask("--by", by)
    monkeypatch.setattr(minute_counts, "MAX_PEAK_CELLS", 90)
    monkeypatch.setattr(minute_rows, "_MAX_CODES", 1)  # groups are numbered by sorting
    monkeypatch.setattr(minute_counts, "_MAX_DENSE_CELLS", 1)
    _, in_parts, _ = ask("--by", by)
    assert in_parts == whole


@pytest.mark.some_cases(3)
@pytest.mark.parametrize("by", ["topic,queue", "none", "tag,kind", "broker"])
@pytest.mark.parametrize("window", [(), ("--window", "10m")])
def test_messages_and_minutes_give_the_same_counts(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, by: str, window: tuple[str, ...]
) -> None:
    _, of_minutes, _ = ask("--by", by, *window)
    monkeypatch.setattr(RatesQuestion, "counted_table", replace(MESSAGES, unit=datetime.timedelta(minutes=1)))
    monkeypatch.setattr(rates, "_PART_ROWS", 7)
    _, of_messages, _ = ask("--by", by, *window)
    assert of_messages == of_minutes


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("window", ["1s", "1m", None])
@pytest.mark.parametrize("by", ["kind", "none"])
def test_half_messages_that_the_broker_stored_again_are_not_prepared_twice(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, by: str, window: str | None
) -> None:
    growing = GrowingLake(tmp_path)
    checked = (("TRANSACTION_CHECK_TIMES", "1"),)
    growing.write(
        [
            new_message(number, topic=HALF_TOPIC, born_timestamp=MIDNIGHT_MS + number, properties=properties)
            for number, properties in enumerate([(), (), (), checked, checked])
        ]
    )
    growing.archive()
    if window is None:
        monkeypatch.setattr(RatesQuestion, "counted_table", replace(MESSAGES, unit=datetime.timedelta(minutes=1)))
    lengths = () if window is None else ("--window", window)
    _, rows, _ = ask("--by", by, *lengths, lake=growing.lake.root)
    assert sum(row["prepared"] for row in rows if row["messages"]) == 3
    assert sum(row["messages"] for row in rows if row["messages"]) == 5


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A half message at physical offset 0 and another one, both committed, and a retry of the first message."""
    growing = GrowingLake(tmp_path_factory.mktemp("committed"))
    half = [new_message(number, topic=HALF_TOPIC, born_timestamp=MIDNIGHT_MS) for number in range(2)]
    second = len(records(half)[0])
    copies = [
        new_message(number, topic=topic, born_timestamp=MIDNIGHT_MS, sys_flag=8, prepared_transaction_offset=prepared)
        for number, (topic, prepared) in enumerate([("orders", 0), ("orders", second), ("%RETRY%billing", 0)])
    ]
    growing.write([*half, *copies])
    growing.archive()
    return growing


@pytest.mark.parametrize(
    "arguments", [("--window", "1m"), ("--window", "30s"), ("--by", "kind"), ("--by", "kind,producer-group")]
)
@pytest.mark.parametrize("place", ["--lake", "--store"])
def test_committed_messages_are_those_with_the_flag_of_a_commit(
    committed: GrowingLake, capsys: pytest.CaptureFixture[str], place: str, arguments: tuple[str, ...]
) -> None:
    path = committed.lake.root if place == "--lake" else str(committed.store)
    assert tps.main([place, path, "--quiet", "--output", "jsonl", *arguments]) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["committed"] or 0 for row in rows) == 2


def test_committed_messages_are_counted_without_the_column_format(committed: GrowingLake, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    names = [name for name in MESSAGES_SCHEMA.names if name != "format"]
    rows = DeltaTable(committed.lake.uri("messages")).to_pyarrow_table(columns=names)
    write_deltalake(lake.uri("messages"), rows)
    start = MIDNIGHT
    coverage = Coverage({"broker-a": TimeSpan(start, start + datetime.timedelta(minutes=2))})
    question = RatesQuestion(["producer-group"], start, start + datetime.timedelta(minutes=2))
    (row,) = rates.Rates(lake, coverage).read_rates(question)
    assert row["committed"] == 2


@pytest.mark.parametrize(
    "by", ["none", "broker", "topic,queue", "tag", "kind", "producer-host", "producer-group", "origin-topic"]
)
def test_the_groups_include_all_messages(ask: Ask, by: str) -> None:
    _, rows, _ = ask("--by", by)
    assert sum(row["messages"] for row in rows) == len(messages())


@pytest.mark.parametrize("earlier", ["queue_id = 0", "true"])
def test_producer_groups_of_earlier_versions_are_read_from_a_property(ask: Ask, tmp_path: Path, earlier: str) -> None:
    growing = GrowingLake(tmp_path)
    sent = [
        new_message(number, queue_id=number % 2, properties=(("A", "b"), *((("PGROUP", group),) if group else ())))
        for number, group in enumerate(["shop", "shop", None, "shop", "bank", "bank", None])
    ]
    growing.write(sent)
    growing.archive()
    DeltaTable(growing.lake.uri("messages")).update(
        {"origin_topic": "NULL", "producer_group": "NULL"}, predicate=earlier
    )
    _, rows, _ = ask("--by", "producer-group", lake=growing.lake.root)
    assert {row["producer-group"]: row["messages"] for row in rows} == {"shop": 3, "bank": 2, None: 2}
    _, rows, _ = ask("--by", "origin-topic", lake=growing.lake.root)
    assert [(row["origin-topic"], row["messages"]) for row in rows] == [("orders", 7)]


@pytest.mark.parametrize("window", ["60s", "10m", "1h", "5s"])
def test_windows_match_a_plain_loop(ask: Ask, window: str) -> None:
    seconds = int(parse_duration(window).total_seconds())
    expected = Counter(
        (message.topic, (message.born_timestamp - MIDNIGHT_MS) // 1000 // seconds * seconds) for message in messages()
    )
    _, rows, printed = ask("--window", window)
    found: Counter[tuple[str, int]] = Counter()
    for row in rows:
        start = datetime.datetime.fromisoformat(row["window_start"]) - MIDNIGHT
        found[(row["topic"], int(start.total_seconds()))] += row["messages"]
    assert +found == expected
    assert len(rows) == 2 * 3600 // seconds
    assert ("from messages" in printed) == (window == "5s")


def test_minutes_and_messages_give_the_same_windows(ask: Ask) -> None:
    _, of_minutes, _ = ask("--window", "1m", "--by", "topic,queue,tag,kind", "--top", "0")
    _, of_messages, _ = ask("--window", "1m", "--step", "30s", "--by", "topic,queue,tag,kind", "--top", "0")
    whole = [row for row in of_messages if row["window_start"].endswith(":00Z")]
    names = ("window_start", "topic", "queue", "tag", "kind", "messages", "retries", "clock_skew")
    plain = [sorted(str([row[name] for name in names]) for row in rows) for rows in (of_minutes, whole)]
    assert plain[0] == plain[1]


def test_overlapping_windows_count_each_step(ask: Ask) -> None:
    _, rows, _ = ask("--window", "10m", "--step", "5m", "--topic", "orders")
    assert [row["messages"] for row in rows] == [20, 20, 20, 10, 0, 10, 20, 20, 20, 20, 20]


def test_a_time_without_messages_is_zero_and_a_time_not_archived_is_null(ask: Ask) -> None:
    code, rows, printed = ask(
        "--window", "10m", "--topic", "orders", "--from", "2023-11-14T23:40", "--to", "2023-11-15T01:20"
    )
    assert code == ExitCode.OK
    assert [row["messages"] for row in rows] == [None, None, 20, 20, 0, 20, 20, 20, None, None]
    assert [row["archived"] for row in rows] == ["none"] * 2 + ["part", "all", "all", "all", "all", "part"] + [
        "none"
    ] * 2
    assert f"archived from {at(0)} to {at(60)} only" in printed


def test_a_gap_is_not_zero(growing: GrowingLake, ask: Ask, tmp_path: Path) -> None:
    other = GrowingLake(tmp_path)
    other.write(messages())
    other.archive()
    half_past = MIDNIGHT + datetime.timedelta(minutes=30)
    rows = rows_of(other.lake.uri("messages"))
    offset = min(row["physical_offset"] for row in rows if row["store_timestamp"] >= half_past)
    gap = {"broker": "broker-a", "segment": "s", "start_offset": offset - 10, "end_offset": offset}
    append_rows(other.lake, "gaps", pa.Table.from_pylist([gap], schema=arrow_schema(GAPS)))
    _, rows, printed = ask("--window", "5m", "--topic", "orders", lake=other.lake.root)
    states = {row["window_start"]: (row["messages"], row["archived"]) for row in rows}
    assert states[at(25)] == (None, "none")
    assert states[at(15)] == (10, "part")
    assert states[at(10)] == (10, "all")
    assert "is not archived" in printed


def test_percentiles_are_of_the_sizes_and_latencies(ask: Ask, growing: GrowingLake) -> None:
    _, rows, _ = ask("--by", "none", "--percentiles")
    sizes = sorted(row["size"] for row in rows_of(growing.lake.uri("messages")))
    assert rows[0]["size_p50"] == sizes[-(-len(sizes) // 2) - 1]
    assert rows[0]["latency_ms_p99"] == 0
    assert rows[0]["wait_ms_p50"] is None
    _, rows, _ = ask("--by", "topic", "--percentiles", "--window", "10m")
    assert {row["latency_ms_p50"] for row in rows} == {0, None}  # none in windows without messages


def test_the_same_time_a_day_before_is_compared(tmp_path: Path, ask: Ask) -> None:
    other = GrowingLake(tmp_path)
    day = 24 * 60 * MINUTE_MS
    other.write([new_message(n, born_timestamp=MIDNIGHT_MS + n * MINUTE_MS) for n in range(10)])
    other.write([new_message(n, born_timestamp=MIDNIGHT_MS + day + n * MINUTE_MS // 2) for n in range(30)])
    other.archive()
    _, rows, _ = ask("--from", "2023-11-16", "--to", "2023-11-16T00:10", "--compare", "day", lake=other.lake.root)
    assert (rows[0]["messages_before"], rows[0]["messages"], rows[0]["change_percent"]) == (10, 20, 100.0)
    _, rows, _ = ask("--from", "2023-11-16", "--to", "2023-11-16T00:10", "--compare", "week", lake=other.lake.root)
    assert (rows[0]["messages_before"], rows[0]["change_percent"]) == (None, None)


def test_filters_select_messages(ask: Ask) -> None:
    _, rows, _ = ask("--topic", "orders", "--queue", "1", "--tag", "Tag0", "--kind", "normal", "--broker", "broker-a")
    expected = sum(
        message.topic == "orders" and message.queue_id == 1 and ("TAGS", "Tag0") in message.properties
        for message in messages()
    )
    assert [row["messages"] for row in rows] == [expected]


def test_only_the_largest_groups_are_shown(ask: Ask) -> None:
    _, rows, printed = ask("--top", "1")
    assert [row["topic"] for row in rows] == ["orders"]
    assert "1 of 2 groups are shown" in printed


def test_an_unknown_topic_is_reported_with_the_nearest(ask: Ask) -> None:
    code, rows, printed = ask("--topic", "ordes")
    assert (code, rows) == (ExitCode.OK, [])
    assert "Did you mean 'orders'?" in printed


def test_too_many_rows_are_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_CELLS", 50)
    code, _, printed = ask("--window", "1m")
    assert code == ExitCode.USAGE
    assert "use longer windows" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--by", "topc"), "Did you mean 'topic'?"),
        (("--by", "topic,topic"), "expected each group once"),
        (("--step", "1m"), "--step needs --window"),
        (("--window", "5m", "--step", "2m"), "expected a time of which --window"),
        (("--window", "5m", "--step", "1m", "--percentiles"), "cannot be used together"),
        (("--window", "5m", "--step", "1m", "--html", "page.html"), "--html and --step cannot be used together"),
        (("--window", "30s", "--percentiles"), "--percentiles works only with windows of whole minutes"),
        (("--by", "producer-host", "--percentiles"), "--percentiles works only with windows of whole minutes"),
        (("--from", "2023-11-16", "--to", "2023-11-15"), "is not before --to"),
        (("--broker", "brker-a"), "Did you mean 'broker-a'?"),
        (
            ("--engine", "spark", "--show", "hot-keys"),
            "--spark has no effect with --show hot-keys",
        ),
    ],
)
def test_wrong_options_are_refused(ask: Ask, arguments: tuple[str, ...], sentence: str) -> None:
    code, rows, printed = ask(*arguments)
    assert (code, rows) == (ExitCode.USAGE, [])
    assert sentence in printed


def test_a_lake_without_complete_counts_is_refused(tmp_path: Path, ask: Ask) -> None:
    other = GrowingLake(tmp_path)
    with without_topic_minutes():
        other.write(messages()[:20])
        other.archive()
    code, _, printed = ask(lake=other.lake.root)
    assert (code, "--backfill topic_minutes" in printed) == (ExitCode.USAGE, True)
    other.write(messages()[20:])
    other.archive()
    code, _, printed = ask(lake=other.lake.root)
    assert code == ExitCode.USAGE
    assert "topic_minutes lacks 1 archive runs" in printed


def test_a_missing_lake_is_refused(tmp_path: Path, ask: Ask) -> None:
    code, _, printed = ask(lake=str(tmp_path / "nowhere"))
    assert (code, "does not exist" in printed) == (ExitCode.USAGE, True)


@pytest.fixture(scope="module")
def by_second(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """An order and its half message each second for five minutes, archived."""
    growing = GrowingLake(tmp_path_factory.mktemp("seconds"))
    topics = ("orders", "RMQ_SYS_TRANS_HALF_TOPIC")
    growing.write(
        new_message(number, topic=topics[number % 2], queue_id=0, born_timestamp=MIDNIGHT_MS + number // 2 * 1000)
        for number in range(2 * 5 * 60)
    )
    growing.archive()
    return growing


@pytest.mark.some_cases(4)
@pytest.mark.parametrize("place", ["lake", "store"])
@pytest.mark.parametrize(("first", "last"), [(90, 105), (50, 70), (30, 200), (60, 130), (59, 120), (60, 120)])
def test_a_time_is_counted_to_the_second(
    by_second: GrowingLake, capsys: pytest.CaptureFixture[str], place: str, first: int, last: int
) -> None:
    where = ["--lake", by_second.lake.root] if place == "lake" else ["--store", str(by_second.store)]
    start, end = (f"{MIDNIGHT + datetime.timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}Z" for second in (first, last))
    assert tps.main([*where, "--from", start, "--to", end, "--by", "none", "--output", "jsonl"]) == ExitCode.OK
    captured = capsys.readouterr()
    (row,) = map(json.loads, captured.out.splitlines())
    assert (row["messages"], row["sent"], row["messages_per_s"]) == (2 * (last - first), last - first, 2)
    assert (row["counted_from"], row["counted_to"]) == (start, end)
    assert f"Producers sent {last - first} messages, 1 per second; the other {last - first} are copies" in captured.err
    assert "longer than" not in captured.err


def test_a_time_that_is_widened_to_whole_windows_is_said(by_second: GrowingLake, tmp_path: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    start, end = "2023-11-15T00:01:30Z", "2023-11-15T00:01:45Z"
    page = tmp_path / "page.html"
    asked = ["--lake", by_second.lake.root, "--from", start, "--to", end, "--by", "none", "--output", "jsonl"]
    assert tps.main([*asked, "--window", "1m", "--html", str(page)]) == ExitCode.OK
    captured = capsys.readouterr()
    (row,) = map(json.loads, captured.out.splitlines())
    assert (row["messages"], row["counted_from"], row["counted_to"]) == (120, at(1), at(2))
    note = f"counted in whole units of 1 min: {at(1)} to {at(2)}, which is longer than {start} to {end}"
    assert note in captured.err
    assert note in page.read_text()
    assert tps.main([*asked, "--html", str(page)]) == ExitCode.OK
    assert "Producers sent 15 messages in 15 s: 1/s on average. With copies that brokers store themselves" in (
        page.read_text()
    )


def test_a_table_and_csv_have_the_same_columns(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert tps.main(["--lake", growing.lake.root, "--quiet", "--full"]) == ExitCode.OK
    titles = capsys.readouterr().out.splitlines()[0]
    assert tps.main(["--lake", growing.lake.root, "--quiet", "--output", "csv"]) == ExitCode.OK
    keys = capsys.readouterr().out.splitlines()[0].split(",")
    assert keys[-2:] == ["counted_from", "counted_to"]
    assert titles.split() == " ".join(rate_columns(keys[:-2])).split()


@pytest.mark.parametrize(("first", "last"), [(0, MINUTES), (22, 28)])  # of the second, a file is read in vain
def test_tps_imports_no_large_package_and_needs_no_jvm(growing: GrowingLake, first: int, last: int) -> None:
    program = (
        "import sys\nfrom commitlake.jobs.cli import main as cli\ncode = cli.main(sys.argv[1:])\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(code)\n"
    )
    command = [sys.executable, "-c", program, "tps", "--lake", growing.lake.root, "--topic", "orders", "--quiet"]
    command += ["--from", at(first), "--to", at(last), "--format", "csv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert ("orders" in done.stdout) == (first == 0)


@pytest.mark.parametrize(("table", "window"), [("topic_minutes", "1m"), ("messages", "1s"), ("archive_runs", "1m")])
def test_a_damaged_data_file_is_named(
    growing: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, window: str
) -> None:
    lake = Path(shutil.copytree(growing.lake.root, tmp_path / "lake"))
    path = next((lake / table).rglob("*.parquet"))
    path.unlink()
    assert tps.main(["--lake", str(lake), "--window", window]) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert f"{lake / table}: the data file " in printed
    assert "maintain --lake LAKE --repair" in printed


def test_spark_in_the_environment_is_used_only_where_it_can_be(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_SPARK", "true")
    code, _, printed = ask("--show", "hot-keys")
    assert (code, "--spark" in printed) == (ExitCode.OK, False)
