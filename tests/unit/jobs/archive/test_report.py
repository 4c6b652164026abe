"""Tests of the page of an archive run: it has the run's numbers, is bounded, and escapes all names."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.printable import escape_line
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive import command as archive
from commitlake.jobs.archive.report import archive_report
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.archive.result import ArchivePageWriter, Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.quality.report import Losses
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.quality.suites import SUITES
from commitlake.schemas.report import Report
from tests.support.audited_lakes import judge_nothing
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of
from tests.support.lakes import GrowingLake, rows_of, shop_messages
from tests.support.profiles import Row, message, messages, profile_of
from tests.support.reports import figures_of, report_of
from tests.support.shown_runs import page_of_run

HOSTILE = "</dd><script>alert('x')</script>\"&\u202e\x00\n${title}"


def tiles_of(root: Element) -> dict[str, str]:
    """Return the figures of a page by their labels."""
    (tiles,) = root.of_class("tiles")
    return {pair.all("dt")[0].text: pair.all("dd")[0].text for pair in tiles.all("div")}


def facts_of(root: Element) -> dict[str, str]:
    """Return the facts of a page by their labels."""
    (facts,) = root.of_class("facts")
    return {pair.all("dt")[0].text: pair.all("dd")[0].text for pair in facts.all("div")}


def damage_bodies(growing: GrowingLake, sent: list[NewMessage], numbers: range) -> None:
    """Append messages to a store, and flip a bit in the bodies of some of them."""
    growing.write(sent)
    for number in numbers:
        growing.log[growing.log.index(sent[number].body)] ^= 1
    growing.write([])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Report]:
    """The second run of a lake, in which some records are damaged: its result and its page."""
    growing = GrowingLake(tmp_path_factory.mktemp("shown"))
    growing.write(shop_messages(60))
    growing.archive()
    damage_bodies(growing, shop_messages(60, seed=1), range(5, 10))
    shown: list[Result] = []
    page = ArchivePageWriter(Path("unused"), shown.append)
    result = run_archive(HERE, Config(str(growing.store), growing.lake, page=page, judge=judge_nothing))
    assert shown == [result]
    return result, archive_report(result)


def test_the_page_has_the_numbers_of_the_run(run: tuple[Result, Report]) -> None:
    result, page = run
    root = parse_page(render_page(page))
    tiles, facts = tiles_of(root), facts_of(root)
    assert (tiles["messages archived"], tiles["unreadable"], tiles["gaps"]) == (
        f"{result.messages:,}", f"{result.quarantined:,}", "0"
    )  # fmt: skip
    assert result.quarantined > 0
    assert tiles["log"] == f"{result.bytes / 1024:.1f} KiB"
    assert facts["Broker"] == "broker-a"
    assert facts["Lake"] == result.lake.root
    assert facts["Run"] == f"2 ({result.run_id})"
    start = result.ranges["broker-a"].start
    rows = [row for row in rows_of(result.lake.uri("messages")) if row["physical_offset"] >= start]
    times = [f"{row['store_timestamp']:%Y-%m-%d %H:%M:%S}" for row in rows]
    assert len(rows) == result.messages
    assert facts["Messages stored"] == f"{min(times)} to {max(times)} UTC"
    assert root.all("h1")[0].text == result.verdict.text[:1].upper() + result.verdict.text[1:]


def test_unreadable_records_are_grouped_and_decoded(run: tuple[Result, Report]) -> None:
    result, page = run
    rows = rows_of(result.lake.uri("quarantine"))
    articles = parse_page(render_page(page)).by_id("findings").all("article")
    (article,) = [each for each in articles if "Bodies whose checksum is wrong" in each.text]
    of_body = sorted((row for row in rows if row["reason"] == "body_crc"), key=lambda row: row["start_offset"])
    assert len(of_body) > 3
    assert f"{len(of_body)} found" in article.all("h3")[0].text
    assert f"{len(of_body) - 3} more like this" in article.text
    places = [item.all("dd")[0].text for item in article.all("li")]
    assert places == [
        f"broker-a, {0:020d}, physical offset {row['start_offset']}, {row['end_offset'] - row['start_offset']} bytes"
        for row in of_body[:3]
    ]
    crc = int(of_body[0]["expected"])
    assert f"{crc & 0xFFFFFFFF:08X} ({crc})" in article.all("li")[0].text
    assert "magic DAA320A7, message of RocketMQ" in article.all("li")[0].text
    assert result.quarantined == len(rows)


def test_the_page_lists_earlier_runs(run: tuple[Result, Report]) -> None:
    result, page = run
    rows = table_of(parse_page(render_page(page)).by_id("runs"))[1:]
    assert [row[0] for row in rows] == ["2 (this run)", "1"]
    assert [row[3] for row in rows] == [f"{result.messages:,}", "60"]
    assert rows[0][5] == f"{result.quarantined}"


def test_a_page_is_self_contained(run: tuple[Result, Report]) -> None:
    assert_self_contained(render_page(run[1]))


def test_the_page_of_a_run_without_problems_states_that() -> None:
    root = parse_page(
        page_of_run(
            report_of(), figures_of(profile_of([*messages(range(2000)), message(3, topic="payments", broker="b")]))
        )
    )
    assert root.all("h1")[0].text == "Archived without problems"
    assert "No problems: all records are intact, and all expectations are met." in root.by_id("findings").text
    assert tiles_of(root)["expectations met"] == "39 of 39"
    rows = table_of(root.by_id("topics"))
    assert [row[:3] for row in rows[1:]] == [["orders", "a", "2,000"], ["payments", "b", "1"]]
    assert len(root.of_class("spark")) == 2


def test_failed_expectations_are_explained_with_critical_ones_first_and_then_damage() -> None:
    example: Row = {"broker": "a", "topic": "orders", "queue_id": 3, "window_start": "2026-11-20T12:00:00+00:00"}
    names = ("kinds_are_known", "no_message_is_lost", "no_dead_letters")
    report = report_of(*((each, example) for each in names))
    root = parse_page(page_of_run(report, figures_of(profile_of(messages(range(3))))))
    articles = root.by_id("findings").all("article")
    assert [each.attributes["class"] for each in articles] == ["notice critical", "notice critical", "notice warning"]
    assert "Expected: no message is lost · not met in 1 of 10 windows of ten minutes of a queue" in articles[1].text
    assert "broker a, topic orders, queue 3, from 2026-11-20 12:00:00 UTC" in articles[1].text
    for suite in SUITES:
        for each in suite.expectations:
            assert (each.why in root.by_id("findings").text) == (each.name in names)
    assert facts_of(root)["Run"] == "none: nothing was committed (r)"
    later = page_of_run(report, figures_of(profile_of(messages(range(3)))), earlier=[(4, "p"), (5, "q")])
    assert facts_of(parse_page(later))["Run"] == "runs 4 to 5; then this part was not committed (r)"
    assert "Stopped" in root.of_class("verdict")[0].text


def test_hostile_names_are_escaped() -> None:
    def page(text: str) -> Element:
        profile = profile_of([message(0, topic=text, broker=text), message(1)])
        return parse_page(
            page_of_run(report_of(("no_message_is_lost", {"topic": text, text: text})), figures_of(profile))
        )

    plain, hostile = page("x"), page(HOSTILE)
    assert [one.name for one in hostile.inner] == [one.name for one in plain.inner]
    assert [row[:2] for row in table_of(hostile.by_id("topics"))].count([escape_line(HOSTILE)] * 2) == 1
    assert "\x00" not in hostile.text


def test_the_page_of_many_topics_is_bounded() -> None:
    rows = [message(n * 700, topic=f"{n:04d}-" + "<" * 240, queue_offset=0) for n in range(1500)]
    text = page_of_run(report_of(), figures_of(profile_of(rows), most=20))
    assert len(text) < 250_000
    assert "1,480 other topics have 1,480 messages" in parse_page(text).text


@pytest.mark.parametrize(
    "rows",
    [
        [message(0, store_timestamp=None, queue_id=None)],
        [message(0, store_timestamp=datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
         message(1, store_timestamp=datetime.datetime(9999, 12, 31, 23, 59, tzinfo=datetime.UTC))],
        [message(0), message(1, store_timestamp=datetime.datetime(9999, 12, 31, 23, 59, tzinfo=datetime.UTC))],
    ],
)  # fmt: skip
def test_messages_with_missing_or_extreme_times_have_a_page(rows: list[Row]) -> None:
    text = page_of_run(report_of(), figures_of(profile_of(rows)))
    assert len(text) < 200_000
    parse_page(text)


def test_a_run_without_messages_has_a_page() -> None:
    parse_page(page_of_run(report_of(), figures_of(profile_of([message()]).slice(0, 0))))


def test_the_page_of_a_run_without_checks_states_that(run: tuple[Result, Report]) -> None:
    shown = replace(run[0], report=None, figures=figures_of(), verdict=Losses().verdict(), quarantined=0)
    root = parse_page(render_page(archive_report(shown)))
    assert "No expectations were checked." in root.by_id("findings").text
    assert "Messages stored" not in facts_of(root)


def test_a_run_without_new_messages_has_a_page(run: tuple[Result, Report]) -> None:
    nothing_new = Result(run[0].lake, "next", {"broker-a": StoreRange(5, 5)})
    root = parse_page(render_page(archive_report(nothing_new)))
    assert root.all("h1")[0].text == "No new messages in 1 store"
    assert len(table_of(root.by_id("runs"))) == 3


# --- the command ---


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store without a lake."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    return growing


def archive_to(growing: GrowingLake, option: str, *more: str) -> tuple[int, str]:
    """Archive without quality checks, with a page; return the exit code and the page's verdict."""
    page = growing.folder / "page.html"
    arguments = ["--store", str(growing.store), "--lake", growing.lake.root, "--local", "--threads", "1", "--quiet"]
    code = archive.main([*arguments, "--no-quality", option, str(page), *more])
    return code, parse_page(page.read_text()).all("h1")[0].text if page.exists() else ""


@pytest.mark.parametrize("option", ["--html", "--quality-page"])
def test_both_names_of_the_option_write_the_page(growing: GrowingLake, option: str) -> None:
    assert archive_to(growing, option) == (0, "Archived")
    assert archive_to(growing, option) == (0, "No new messages in 1 store")


def test_files_beside_the_log_that_cannot_be_read_are_named_by_the_verdict(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("topics", "consumerOffset"):
        file = Path(growing.store) / "config" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text("{{")
    page = growing.folder / "page.html"
    arguments = ["--store", str(growing.store), "--lake", growing.lake.root, "--local", "--threads", "1"]
    for said in ("Archived, with warnings: 2 problems with files beside the log", "No new messages in 1 store"):
        code = archive.main([*arguments, "--no-quality", "--html", str(page)])
        root = parse_page(page.read_text())
        assert (code, root.all("h1")[0].text) == (0, said)
        assert root.of_class("verdict")[0].attributes["class"] == "verdict warning"
        summary = capsys.readouterr()
        assert said in summary.out + summary.err or said[0].lower() + said[1:] in summary.out + summary.err
        for name in ("topics.json", "consumerOffset.json"):
            assert name in root.by_id("findings").text
            assert name in summary.out + summary.err


def test_a_run_that_fails_replaces_the_page(growing: GrowingLake) -> None:
    archive_to(growing, "--html")
    damage_bodies(growing, shop_messages(20, seed=3), range(2, 4))
    code, verdict = archive_to(growing, "--html", "--on-corrupt", "fail")
    assert code == 3
    assert verdict.startswith("Failed: ")
    assert "body_crc" in verdict


def test_the_page_names_a_folder_that_is_not_a_lake(growing: GrowingLake) -> None:
    Path(growing.lake.root).mkdir()
    (Path(growing.lake.root) / "other").touch()
    code, verdict = archive_to(growing, "--html")
    assert code == 2
    assert "is not a lake" in verdict


def test_two_pages_are_refused(growing: GrowingLake) -> None:
    assert archive_to(growing, "--html", "--quality-page", "x.html")[0] == 2
