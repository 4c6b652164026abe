"""Tests of the page of lag: the worst group first, the numbers of the rows, gaps are not zeros, bounded and escaped."""

from __future__ import annotations

import datetime
import json
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.cli import main as cli
from commitlake.jobs.lag import command as lag
from commitlake.jobs.lag.report import MAX_GROUPS, MAX_QUEUES, MeasuredSource, lag_report, text_table
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.history import LagHistory
from commitlake.pipelines.lag.offsets import OffsetAt
from commitlake.pipelines.lag.store_lag import LagAnswer
from commitlake.pipelines.lag.verdicts import FigureBounds, LagJudgement, LagVerdict
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report import NO_FIGURE, Report
from commitlake.schemas.times import TimeWindows
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of
from tests.support.lakes import GrowingLake
from tests.support.shop_days import HOSTILE_GROUP, HOSTILE_TOPIC

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
LAKE = MeasuredSource(("--lake", "/data/lake"))


def row(group: str, verdict: LagVerdict = LagVerdict.OK, messages: int = 0, **changes: Any) -> LagRow:
    made = LagRow(
        broker="broker-a",
        kind="group",
        group=group,
        topic="orders",
        queue_id=0,
        as_of=NOON,
        offset=OffsetAt(7, 7),
        end=7 + messages,
        messages=FigureBounds(messages, messages),
        bytes=FigureBounds(100 * messages, 100 * messages),
        seconds=FigureBounds(60.0 * messages, 60.0 * messages),
        next_time=None,
        judged=LagJudgement(verdict),
    )
    return made._replace(**changes)


def parsed(page: Report) -> Element:
    text = render_page(page)
    assert_self_contained(text)
    return parse_page(text)


def commands_of(page: Element) -> list[str]:
    """Return the commands that the page offers for copying."""
    return [code.text for block in page.by_id("do").of_class("command") for code in block.all("code")]


def page_of(*rows: LagRow, missing: tuple[str, ...] = (), history: LagHistory | None = None) -> Element:
    return parsed(lag_report(LagAnswer(rows, missing), history, LAKE))


@pytest.fixture(scope="module")
def asked(shop: GrowingLake, tmp_path_factory: pytest.TempPathFactory) -> Element:
    """The page of the shop's lake."""
    path = tmp_path_factory.mktemp("page") / "lag.html"
    assert lag.main(["--lake", shop.lake.root, "--html", str(path), "--quiet"]) == 0
    assert_self_contained(path.read_text())
    return parse_page(path.read_text())


def test_the_tables_have_the_numbers_of_the_rows(
    asked: Element, shop: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert lag.main(["--lake", shop.lake.root, "--all", "--output", "jsonl", "--quiet"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    queues = table_of(asked.by_id("queues"))[1:]
    shown = [(line[0], line[1], int(line[2]), line[3][1:], int(line[4].replace(",", ""))) for line in queues]
    names = ("group", "topic", "queue_id", "verdict", "messages_max")
    assert shown == [tuple(_plain(row[name]) for name in names) for row in rows]
    messages: dict[str, int] = defaultdict(int)
    for one in rows:
        messages[_plain(one["group"])] += one["messages_max"]
    groups = table_of(asked.by_id("groups"))[1:]
    assert {line[0]: int(line[2].replace(",", "")) for line in groups} == messages


def _plain(value: Any) -> Any:
    return value.replace("\u202e", "\\u202e") if isinstance(value, str) else value


def test_the_worst_group_is_in_the_first_sentence(asked: Element) -> None:
    shown = _plain(HOSTILE_GROUP)
    sentence = asked.all("h1")[0].text
    assert sentence.startswith(f"{shown} has stopped on {HOSTILE_TOPIC}: ")
    assert asked.of_class("verdict")[0].attributes["class"] == "verdict critical"
    assert [line[0] for line in table_of(asked.by_id("groups"))[1:3]] == [shown, "billing"]
    assert [one.text for one in asked.of_class("heat-name")][:2] == [shown, "billing"]


def test_a_time_without_a_snapshot_has_no_value(asked: Element) -> None:
    heat, lines = asked.by_id("history").all("figure")
    for chart in (heat, lines):
        rows = {line[0]: line[1:] for line in table_of(chart)[1:]}
        assert {cell for hour in ("08", "09") for cell in rows[f"2023-11-15 {hour}:00"][:5]} == {NO_FIGURE}
        assert NO_FIGURE not in rows["2023-11-15 10:00"]
    strip = heat.of_class("strip")[0]
    assert "no figures in 2 of 17 windows" in strip.attributes["aria-label"]
    assert [one.attributes["d"].count("M") for one in lines.of_class("line") if "d" in one.attributes] == [2] * 5


def test_the_history_ends_with_the_values_of_the_table(asked: Element) -> None:
    heat = table_of(asked.by_id("history").all("figure")[0])
    groups = {line[0]: line[2] for line in table_of(asked.by_id("groups"))[1:]}
    assert dict(zip(heat[0][1:], heat[-1][1:], strict=True)) == groups


def test_commands_follow_from_the_verdicts() -> None:
    page = page_of(row("it's", LagVerdict.STALLED, 3), row("slow", LagVerdict.SLOW, 2), row("well"))
    place = "--broker broker-a --topic orders --queue 0"
    assert commands_of(page) == [
        f"commitlake query --lake /data/lake {place} --where 'queue_offset >= 7' --limit 20",
        "commitlake lag --lake /data/lake --group 'it'\"'\"'s' --by queue --all",
        "commitlake tps --lake /data/lake --topic orders --by queue --window 10m",
        "commitlake lag --lake /data/lake --group slow --by queue --all",
    ]


@pytest.mark.some_cases(3)
@pytest.mark.parametrize("verdict", [verdict for verdict in LagVerdict if verdict is not LagVerdict.OK])
def test_commands_for_each_verdict_run(verdict: LagVerdict, shop: GrowingLake) -> None:
    behind = row("billing", verdict, 3, lost=FigureBounds(2, 2), log_start=100)
    source = MeasuredSource(("--lake", shop.lake.root), NOON)
    page = parsed(lag_report(LagAnswer([behind], ()), None, source))
    commands = commands_of(page)
    assert len(commands) >= 2
    for command in commands:
        assert cli.main([*shlex.split(command)[1:], "--quiet"]) in {ExitCode.OK, ExitCode.DAMAGE}, command


def test_an_advice_whose_places_are_not_known_offers_no_command() -> None:
    page = page_of(row("new", LagVerdict.UNKNOWN, 3))
    assert "commitlake snapshot --lake /data/lake --store STORE takes another one." in page.by_id("do").text
    assert [command.split()[1] for command in commands_of(page)] == ["lag"]


def test_the_verdict_is_good_if_all_groups_keep_up() -> None:
    page = page_of(row("a"), row("b", messages=2))
    assert page.all("h1")[0].text == (
        "All 2 groups keep up; b is furthest behind: 2 messages behind, the next one has waited for 2 min."
    )
    assert page.of_class("verdict")[0].attributes["class"] == "verdict good"


def test_one_message_and_one_group_are_named_in_the_singular() -> None:
    assert "b is furthest behind: 1 message behind, " in page_of(row("b", messages=1)).all("h1")[0].text
    page = page_of(row("a", messages=1), *(row(f"b{number:03d}", messages=2) for number in range(MAX_GROUPS)))
    assert "; the other one is 1 message behind." in page.by_id("groups").text


def test_the_verdict_is_a_warning_if_a_broker_has_no_snapshot() -> None:
    page = page_of(row("a"), missing=("broker-b: the lake has no snapshot",))
    assert page.of_class("verdict")[0].attributes["class"] == "verdict warning"
    assert "broker-b: the lake has no snapshot" in page.by_id("do").text
    assert "No group's offsets are known" in page_of().all("h1")[0].text


def test_bounds_are_shown_as_bounds() -> None:
    page = page_of(row("a")._replace(messages=FigureBounds(3, 5)), row("b")._replace(messages=FigureBounds(3, None)))
    assert {line[0]: line[2] for line in table_of(page.by_id("groups"))[1:]} == {"a": "3 to 5", "b": "3 or more"}


def test_messages_that_brokers_hold_back_have_a_separate_table() -> None:
    page = page_of(row("a"), row("", LagVerdict.SLOW, 4, kind="delay", topic="SCHEDULE_TOPIC_XXXX"))
    assert [line[:2] for line in table_of(page.by_id("held"))[1:]] == [["delay", "SCHEDULE_TOPIC_XXXX"]]
    assert len(table_of(page.by_id("groups"))) == 2


def test_the_verdict_names_messages_that_brokers_hold_back_for_too_long() -> None:
    page = page_of(row("a"), row("", LagVerdict.SLOW, 4, kind="timer", topic="rmq_sys_wheel_timer"))
    assert page.all("h1")[0].text.endswith("Overdue: timer messages of rmq_sys_wheel_timer.")
    assert page.of_class("verdict")[0].attributes["class"] == "verdict warning"
    assert "Overdue" not in page_of(row("a"), row("", kind="delay")).all("h1")[0].text


def test_the_page_of_a_store_has_no_history(shop: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "lag.html"
    assert lag.main(["--store", str(shop.store), "--html", str(path), "--quiet"]) == 3  # it has no file of offsets
    page = parse_page(path.read_text())
    assert "A store has no history" in page.by_id("history").text
    assert not page.by_id("do").all("code")


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((3.0, 1.0), "At its present rate it has caught up in 10 min."),
        ((1.0, 3.0), "At its present rate it does not catch up."),
        ((None, 3.0), "How long it needs to catch up is not known."),
    ],
)
def test_why_since_when_and_until_when_a_group_is_behind(rates: tuple[float | None, float], expected: str) -> None:
    behind = row("a", LagVerdict.STALLED, 1200, judged=LagJudgement(LagVerdict.STALLED, "it sleeps", *rates))
    for hours, since in ((1, "not moving since 11:00 UTC"), (24, "not moving since 2026-11-19 12:00 UTC")):
        time = NOON - datetime.timedelta(hours=hours)
        text = parsed(lag_report(LagAnswer([behind], ()), None, LAKE, (), time)).by_id("do").text
        assert since in text
        assert "Why: it sleeps (queue 0 of orders)." in text
        assert expected in text


def test_a_job_that_fails_replaces_an_older_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("an older page")
    assert lag.main(["--lake", str(tmp_path / "nowhere"), "--html", str(path)]) == 2
    assert parse_page(path.read_text()).all("h1")[0].text.startswith("Failed: ")


def test_only_the_worst_of_thousands_of_groups_are_shown() -> None:
    rows = [row(f"{number:05d}-" + "x" * 60, LagVerdict.SLOW, number) for number in range(10_000)]
    windows = TimeWindows(NOON, datetime.timedelta(hours=1), 72)
    worst = [one.group for one in reversed(rows[-20:])]
    history = LagHistory(windows, {group: [*range(71), None] for group in worst})
    page = lag_report(LagAnswer(rows, ()), history, LAKE)
    assert len(render_page(page)) < 600_000
    root = parsed(page)
    assert len(table_of(root.by_id("groups"))) == 1 + MAX_GROUPS
    assert len(table_of(root.by_id("queues"))) == 1 + MAX_QUEUES
    left = sum(range(10_000 - MAX_GROUPS))
    assert f"the 9,800 others are {left:,} messages behind" in root.by_id("groups").text
    assert "The 20 worst of 10,000 groups are drawn" in root.by_id("history").text
    assert "9,995 more groups need attention" in root.by_id("do").text


def test_queues_name_their_broker_if_there_are_several() -> None:
    one, two = page_of(row("billing")), page_of(row("billing"), row("billing", broker="broker-b"))
    assert "broker" not in table_of(one.by_id("queues"))[0]
    header, *lines = table_of(two.by_id("queues"))
    assert {line[header.index("broker")] for line in lines} == {"broker-a", "broker-b"}


def test_the_text_has_a_row_for_each_group_and_for_what_brokers_hold_back() -> None:
    rows = [
        row("billing", LagVerdict.SLOW, 2, filter="paid"),
        row("billing", topic="%RETRY%billing", broker="broker-b"),
        row("", kind="delay", topic="SCHEDULE_TOPIC_XXXX"),
    ]
    table = text_table(rows, shows_queues=False)
    found = [dict(zip(map(str, table.columns), map(str, cells), strict=True)) for cells in table.rows]
    assert [(one["group"], one["queues behind"], one["topics"], one["filter"]) for one in found] == [
        ("billing", "1 of 2", "orders", "paid"),
        ("(delay)", "0 of 1", "SCHEDULE_TOPIC_XXXX", ""),
    ]
    assert "broker" in text_table(rows, shows_queues=True).columns
    assert "broker" not in text_table(rows[:1], shows_queues=True).columns


def test_a_queue_has_the_time_of_the_last_consumed_message() -> None:
    page = page_of(row("billing", last_consumed_time=NOON), row("shipping", LagVerdict.STOPPED, 1))
    header, *lines = table_of(page.by_id("queues"))
    column = next(number for number, title in enumerate(header) if "last consumed" in title)
    assert {line[0]: line[column] for line in lines} == {"billing": "2026-11-20 12:00:00", "shipping": ""}
