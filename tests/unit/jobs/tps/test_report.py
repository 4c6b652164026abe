"""Tests of the page of rates: the numbers of the rows, gaps are not zeros, bounded and escaped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.tps import command as tps
from commitlake.pipelines.tps import report
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report import NO_FIGURE
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.shop_days import HOSTILE_TOPIC


class Asked:
    """Rows and the page of the same question.

    Attributes:
        rows: as `--output jsonl` prints them.
        text: of the page.
        page: its elements.
    """

    def __init__(self, lake: str, path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        code = tps.main(["--lake", lake, "--html", str(path), "--output", "jsonl", "--top", "0", *arguments])
        assert code == ExitCode.OK
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        self.text = path.read_text()
        self.page = parse_page(self.text)

    def chart(self, section: str, number: int = 0) -> Element:
        """Return a chart of a section."""
        return self.page.by_id(section).all("figure")[number]


@pytest.fixture
def asked(shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    """The page of all topics."""
    return Asked(shop.lake.root, tmp_path / "page.html", capsys)


def test_the_table_has_the_numbers_of_the_rows(asked: Asked, shop: GrowingLake) -> None:
    head, *lines = table_of(asked.page.by_id("groups"))
    assert head[:3] == ["topic", "messages", "share"]
    assert [line[:2] for line in lines] == [[row["topic"], f"{row['messages']:,}"] for row in asked.rows]
    for line, row in zip(lines, asked.rows, strict=True):
        assert [float(line[3]), float(line[4])] == [row["messages_per_s"], row["peak_per_s"]]
        assert line[5] == row["peak_at"][:16].replace("T", " ")
        assert [int(line[7]), int(line[8])] == [row["retries"], row["dead_letters"]]
    assert sum(row["messages"] for row in asked.rows) == shop.count
    assert f"{shop.count:,} messages in 16 h" in asked.page.all("h1")[0].text
    assert size_text(len(shop.log)) in asked.page.by_id("summary").text


def test_the_chart_has_the_numbers_of_the_windows(
    asked: Asked, shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, *lines = table_of(asked.chart("rates"))
    windows = Asked(shop.lake.root, tmp_path / "other.html", capsys, "--window", "10m").rows
    expected = {(row["window_start"][:16].replace("T", " "), row["topic"]): row["messages_per_s"] for row in windows}
    found = {
        (line[0], topic): None if value == NO_FIGURE else float(value)
        for line in lines
        for topic, value in zip(head[1:-1], line[1:-1], strict=True)
    }
    assert found == expected


def test_the_first_and_last_minute_of_a_log_are_not_reported_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(
        new_message(number, topic="orders", born_timestamp=MIDNIGHT_MS + 60_000 * number) for number in range(30)
    )
    growing.archive()
    page = tmp_path / "page.html"
    asked = Asked(growing.lake.root, page, capsys)
    missing = "Not all of this time is archived"
    assert missing not in asked.text
    earlier = Asked(growing.lake.root, page, capsys, "--from", "2023-11-14T20:00", "--to", "2023-11-15T00:30")
    assert missing in earlier.text


def test_a_time_that_is_not_archived_is_a_gap_and_not_zero(asked: Asked) -> None:
    _, *lines = table_of(asked.chart("rates"))
    missing = [line for line in lines if line[0].startswith("2023-11-15 05")]
    assert len(missing) == 6
    assert all(value == NO_FIGURE for line in missing for value in line[1:-1])
    assert all(line[-1] == "not archived" for line in missing)
    chart = asked.chart("rates")
    path = next(one for one in chart.all("path") if one.attributes["class"] == "line s0")
    assert path.attributes["d"].count("M") == 2
    (hatched,) = [one for one in chart.of_class("missing") if one.attributes["width"].endswith("%")]
    assert (hatched.attributes["x"], hatched.attributes["width"]) == ("31.25%", "6.25%")
    assert "Not all of this time is archived" in asked.page.all("h1")[0].text
    assert "from 2023-11-15T04:59:00Z to 2023-11-15T06:01:00Z is not archived" in asked.page.by_id("do").text


def test_damage_is_marked_in_the_chart_and_reported(asked: Asked) -> None:
    assert "Parts of the log are damaged" in asked.page.all("h1")[0].text
    (sign,) = asked.chart("rates").of_class("damage-sign")
    assert 68 < float(sign.attributes["x"].rstrip("%")) < 69  # 11 of 16 hours
    commands = [code.text for code in asked.page.by_id("do").all("code")]
    assert any(command.endswith("--table quarantine") for command in commands)


def test_the_latency_chart_has_the_percentiles(
    asked: Asked, shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--by", "none", "--window", "10m", "--percentiles")
    rows = Asked(shop.lake.root, tmp_path / "other.html", capsys, *arguments).rows
    ranks = ("p50", "p95", "p99")
    for number, figure in enumerate(("latency_ms", "wait_ms")):
        _, *lines = table_of(asked.chart("latency", number))
        for line, row in zip(lines, rows, strict=True):
            values = [row[f"{figure}_{rank}"] for rank in ranks]
            assert line[1:4] == [NO_FIGURE if value is None else f"{value:,} ms" for value in values]


def test_the_page_is_self_contained_and_hostile_topics_are_escaped(asked: Asked) -> None:
    assert_self_contained(asked.text)
    assert HOSTILE_TOPIC not in asked.text
    assert HOSTILE_TOPIC in [line[0] for line in table_of(asked.page.by_id("groups"))]
    assert len(asked.page.all("script")) == 1


@pytest.mark.parametrize("window", ["1m", "30s"])
def test_windows_of_a_given_length_are_drawn(
    window: str, shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("--from", "2023-11-15T14:00", "--to", "2023-11-15T14:10", "--topic", "orders", "--window", window)
    asked = Asked(shop.lake.root, tmp_path / "page.html", capsys, *times)
    _, *lines = table_of(asked.chart("rates"))
    assert len(lines) == 600 / parse_duration(window).total_seconds()
    assert [float(line[1]) for line in lines] == [row["messages_per_s"] for row in asked.rows]
    messages = sum(row["messages"] for row in asked.rows)
    assert table_of(asked.page.by_id("groups"))[1][1] == f"{messages:,}"


@pytest.mark.parametrize(
    ("by", "heads"), [("none", ["all"]), ("queue,kind", ["queue", "kind"]), ("origin-topic", ["origin-topic"])]
)
def test_rates_by_other_columns_have_a_page(
    by: str, heads: list[str], shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(shop.lake.root, tmp_path / "page.html", capsys, "--by", by)
    found = table_of(asked.page.by_id("groups"))
    assert found[0][: len(heads)] == heads
    assert [line[len(heads)] for line in found[1:]] == [f"{row['messages']:,}" for row in asked.rows]


def test_a_time_without_messages_has_a_page(
    shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(shop.lake.root, tmp_path / "page.html", capsys, "--from", "2020-01-01", "--to", "2020-01-02")
    assert asked.page.all("h1")[0].text.startswith("No message is archived from 2020-01-01")


def test_a_store_has_a_page_from_its_log(shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert tps.main(["--store", str(shop.store), "--html", str(path), "--quiet"]) == ExitCode.OK
    page = parse_page(path.read_text())
    assert f"{shop.count:,} messages in 16 h" in page.all("h1")[0].text
    commands = [code.text for block in page.by_id("do").of_class("command") for code in block.all("code")]
    assert all(f"commitlake tps --store {shop.store}" in command for command in commands)
    by_host = ["--by", "producer-host", "--html", str(path), "--quiet"]
    assert tps.main(["--store", str(shop.store), *by_host]) == ExitCode.OK
    assert table_of(parse_page(path.read_text()).by_id("groups"))[1][1] == f"{shop.count:,}"


def test_a_job_that_fails_replaces_an_older_page(tmp_path: Path, shop: GrowingLake) -> None:
    path = tmp_path / "page.html"
    path.write_text("an older page")
    assert tps.main(["--lake", str(tmp_path / "nowhere"), "--html", str(path)]) == ExitCode.USAGE
    assert parse_page(path.read_text()).all("h1")[0].text.startswith("Failed: ")
    assert tps.main(["--lake", shop.lake.root, "--html", str(tmp_path / "no" / "page.html")]) == ExitCode.USAGE


def test_percentiles_are_left_out_with_a_note_if_there_are_too_many_sketches(
    shop: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_SKETCHES", 10)
    asked = Asked(shop.lake.root, tmp_path / "page.html", capsys)
    assert "Percentiles are not shown" in asked.page.by_id("latency").text


def test_only_the_largest_of_thousands_of_topics_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    topics = [f"{number:05d}-" + "x" * 60 for number in range(3000)]
    names = [*topics, *topics[:300]]
    growing.write(new_message(n, topic=topic, born_timestamp=MIDNIGHT_MS + n * 1000) for n, topic in enumerate(names))
    growing.archive()
    asked = Asked(growing.lake.root, tmp_path / "page.html", capsys)
    assert len(asked.text) < 500_000
    assert len(asked.page.by_id("groups").all("tr")) == 1 + report.MAX_GROUPS
    assert "The 200 largest of 3,000 are shown. The 2,800 others have 2,900 messages" in asked.page.text
    head, *lines = table_of(asked.chart("rates"))
    assert head[-2] == "2,993 others, summed"
    drawn = sum(float(value) for line in lines for value in line[1:-1] if value != NO_FIGURE)
    assert drawn * 60 == pytest.approx(3300, abs=10)
