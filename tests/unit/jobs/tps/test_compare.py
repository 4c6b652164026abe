"""Tests of `tps --compare`: groups that fell silent, and an earlier time that is archived in part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.tps import command as tps
from commitlake.pipelines.tps import rates
from commitlake.schemas.errors import ExitCode
from tests.support.html_pages import parse_page, table_of
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

HOUR_MS = 3_600_000
SECOND_DAY = ("--from", "2023-11-16T10:00", "--to", "2023-11-16T11:00", "--compare", "day")
Ask = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """Two days: `orders` four times an hour, and `silent` three times an hour on the first day only."""
    growing = GrowingLake(tmp_path_factory.mktemp("compare"))
    sent = []
    for hour in range(48):
        start = MIDNIGHT_MS + hour * HOUR_MS
        sent += [new_message(n, topic="orders", born_timestamp=start + n * HOUR_MS // 4) for n in range(4)]
        if hour < 24:
            sent += [new_message(n, topic="silent", queue_id=0, born_timestamp=start + n * 1000) for n in range(3)]
    growing.write(sorted(sent, key=lambda message: message.born_timestamp))
    growing.archive()
    return growing


@pytest.fixture(params=["--lake", "--store"])
def ask(request: pytest.FixtureRequest, growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask the lake, and the store itself, for rows as JSON lines."""
    place = growing.lake.root if request.param == "--lake" else str(growing.store)

    def ask(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        capsys.readouterr()
        code = tps.main([request.param, place, "--output", "jsonl", *arguments])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return ask


@pytest.mark.parametrize("by", ["topic", "topic,producer-host"])
def test_a_group_that_fell_silent_has_a_row_with_zero_messages(ask: Ask, by: str) -> None:
    code, rows, printed = ask(*SECOND_DAY, "--by", by)
    names = ("topic", "messages", "messages_before", "change_percent", "peak_per_s", "peak_at", "archived")
    assert code == ExitCode.OK
    assert [tuple(row[name] for name in names[:4]) for row in rows] == [
        ("orders", 4, 4, 0.0), ("silent", 0, 3, -100.0),
    ]  # fmt: skip
    assert [rows[1][name] for name in names[4:]] == [0.0, None, "all"]
    assert "1 group has no messages now, but had some a day before\n  silent" in printed


@pytest.mark.parametrize("window", ["30m", "5s"])
def test_a_group_that_fell_silent_has_a_row_for_each_window(ask: Ask, window: str) -> None:
    code, rows, printed = ask(*SECOND_DAY, "--topic", "silent", "--window", window)
    assert code == ExitCode.OK
    assert len(rows) == (2 if window == "30m" else 720)
    assert {row["messages"] for row in rows} == {0}
    assert [row["messages_before"] for row in rows][:2] == [3, 0]
    assert [row["change_percent"] for row in rows][:2] == [-100.0, None]
    assert "had some a day before" in printed


def test_without_groups_a_silent_time_has_a_row(ask: Ask) -> None:
    _, rows, _ = ask(*SECOND_DAY, "--by", "none", "--topic", "silent", "--percentiles")
    assert [(row["messages"], row["messages_before"], row["size_p50"]) for row in rows] == [(0, 3, None)]


def test_overlapping_windows_are_compared(ask: Ask) -> None:
    _, rows, _ = ask(*SECOND_DAY, "--topic", "silent", "--window", "30m", "--step", "15m")
    assert [row["messages_before"] for row in rows] == [3, 0, 0]


def test_the_largest_groups_are_chosen_by_the_larger_of_both_times(ask: Ask) -> None:
    _, rows, _ = ask("--from", "2023-11-16", "--to", "2023-11-16T00:10", "--compare", "day", "--top", "1")
    assert [row["topic"] for row in rows] == ["silent"]


def test_a_time_that_is_not_archived_has_no_count(ask: Ask) -> None:
    _, rows, printed = ask("--from", "2023-11-17T02:00", "--to", "2023-11-17T03:00", "--compare", "day")
    assert [(row["topic"], row["messages"], row["messages_before"]) for row in rows] == [("orders", None, 4)]
    assert "had some a day before" not in printed


@pytest.mark.parametrize("window", [(), ("--window", "1h"), ("--window", "30m")])
def test_no_change_is_given_if_the_earlier_time_is_archived_in_part(ask: Ask, window: tuple[str, ...]) -> None:
    times = ("--from", "2023-11-15T23:30", "--to", "2023-11-16T00:30")
    _, rows, printed = ask(*times, "--compare", "day", "--topic", "orders", *window)
    found = [(row["messages_before"], row["change_percent"]) for row in rows]
    assert (
        found == {"": [(2, None)], "1h": [(None, None), (4, 0.0)], "30m": [(None, None), (2, 0.0)]}["".join(window[1:])]
    )
    note, missing = printed[printed.index("The time compared with") :].splitlines()[:2]
    assert note.endswith("is not complete")
    assert missing.startswith("  broker-a: ")
    assert "from 2023-11-15T00:00:00Z to" in missing


def test_a_complete_earlier_time_has_no_note(ask: Ask) -> None:
    assert "is not complete" not in ask(*SECOND_DAY)[2]


def test_windows_that_do_not_divide_the_distance_are_refused(ask: Ask) -> None:
    code, _, printed = ask("--window", "7h", "--compare", "day")
    assert code == ExitCode.USAGE
    assert "--compare day: expected a --window of which a day is a multiple, found 7 h" in printed
    assert ask("--window", "7h", "--step", "1h", "--compare", "day")[0] == ExitCode.OK


def test_too_many_rows_of_silent_groups_are_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_CELLS", 60)
    code, _, printed = ask(*SECOND_DAY, "--window", "1m")
    assert code == ExitCode.USAGE
    assert "use longer windows" in printed


def test_the_page_shows_the_groups_that_fell_silent(growing: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert tps.main(["--lake", growing.lake.root, "--html", str(path), "--quiet", *SECOND_DAY]) == ExitCode.OK
    page = parse_page(path.read_text())
    head, *lines = table_of(page.by_id("groups"))
    places = [head.index(title) for title in ("topic", "messages", "messages before", "change")]
    assert [[line[place] for place in places] for line in lines] == [
        ["orders", "4", "4", "+0.0 %"], ["silent", "0", "3", "-100.0 %"],
    ]  # fmt: skip
    assert "1 group has no messages now, but had some a day before" in page.by_id("do").text
    assert "others, summed" not in page.text


def test_the_page_shows_that_the_earlier_time_is_archived_in_part(growing: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    times = ("--from", "2023-11-15T23:30", "--to", "2023-11-16T00:30", "--compare", "day")
    assert tps.main(["--lake", growing.lake.root, "--html", str(path), "--quiet", *times]) == ExitCode.OK
    assert (
        "2023-11-14T23:30:00Z to 2023-11-15T00:30:00Z, is not complete" in parse_page(path.read_text()).by_id("do").text
    )


def test_page_shows_topic_that_had_messages_only_at_the_earlier_time(growing: GrowingLake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    arguments = ("--quiet", *SECOND_DAY, "--topic", "silent")
    assert tps.main(["--lake", growing.lake.root, "--html", str(path), *arguments]) == ExitCode.OK
    page = parse_page(path.read_text())
    assert "silent" in table_of(page.by_id("groups"))[1]
    assert "1 group has no messages now" in page.all("h1")[0].text
