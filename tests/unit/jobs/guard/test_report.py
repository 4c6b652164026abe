"""Tests of the page of guard: segments at risk and lost, bounded size, escaped names."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.guard import command as guard
from commitlake.jobs.guard.report import MAX_ROWS, guard_report
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.retention.deletion_forecast import Forecast, SegmentVerdict, WatchedSegment, WatchedStore
from commitlake.pipelines.retention.deletion_rules import DeletionCause, Disk, Rules
from commitlake.pipelines.retention.segments import StoredSegment
from commitlake.schemas.layouts.rocketmq.broker_conf import BrokerConf
from tests.support.html_pages import Element, assert_self_contained, parse_page, table_of
from tests.support.lakes import SEGMENT, GrowingLake, shop_messages

NOW = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SIZE = 1 << 30
HOSTILE = "<script>alert('x')</script>\u202e"
PLACES = {"store": "/data/store", "lake": "/data/lake", "named": []}
COMMAND = "commitlake archive --store /data/store --lake /data/lake"


def segments(*verdicts: SegmentVerdict) -> list[WatchedSegment]:
    """Return consecutive segments; those at risk are deleted hour by hour."""
    return [
        WatchedSegment(
            Forecast(
                StoredSegment(number * SIZE, SIZE, SIZE, NOW - HOUR, verdict is not SegmentVerdict.UNUSED),
                deleted_at=NOW + (number % 100 + 1) * HOUR if verdict is SegmentVerdict.AT_RISK else None,
                cause=DeletionCause.TIME if verdict is SegmentVerdict.AT_RISK else None,
            ),
            verdict,
        )
        for number, verdict in enumerate(verdicts)
    ]  # fmt: skip


def store(
    *verdicts: SegmentVerdict,
    broker: str = "broker-a",
    disks: Sequence[Disk] = (Disk(1, 50 << 30, 100 << 30),),
    lost: tuple[int, int] | None = None,
    replaced: str = "",
) -> WatchedStore:
    """Return a store with segments of these verdicts."""
    return WatchedStore(broker, f"/data/{broker}", Rules(BrokerConf()), segments(*verdicts), disks, 0.0, lost, replaced)


def text_of(*stores: WatchedStore) -> str:
    return render_page(guard_report(stores, Lake("/nowhere/lake"), 12 * HOUR, NOW, placeholders=PLACES))


def page_of(*stores: WatchedStore) -> Element:
    return parse_page(text_of(*stores))


def tiles_of(root: Element) -> dict[str, str]:
    """Return the figures of a page by their labels."""
    return {pair.all("dt")[0].text: pair.all("dd")[0].text for pair in root.of_class("tiles")[0].all("div")}


def test_the_page_of_an_archived_store_shows_no_risk() -> None:
    root = page_of(store(SegmentVerdict.ARCHIVED, SegmentVerdict.ARCHIVED, SegmentVerdict.WAITS, SegmentVerdict.UNUSED))
    assert root.all("h1")[0].text == "No segment is lost or at risk within 12 h"
    assert root.of_class("verdict")[0].attributes["class"] == "verdict good"
    assert tiles_of(root) == {
        "stores": "1", "segments": "3", "archived": "2", "not archived yet": "1", "at risk within 12 h": "0",
        "lost": "0 B", "log": "3.0 GiB",
    }  # fmt: skip
    assert "No segment is lost or at risk, and no disk is too full." in root.text


def test_segments_with_the_same_verdict_are_one_row() -> None:
    rows = table_of(page_of(store(*[SegmentVerdict.ARCHIVED] * 40, SegmentVerdict.WAITS)).by_id("forecast"))
    assert [row[:5] for row in rows[1:]] == [
        [f"{0:020d} to {39 * SIZE:020d}", "broker-a", "✓archived", "40", "40.0 GiB"],
        [f"{40 * SIZE:020d}", "broker-a", "inot archived yet", "1", "1.0 GiB"],
    ]


def test_segments_at_risk_are_grouped_with_the_command_to_archive_them() -> None:
    root = page_of(store(*[SegmentVerdict.AT_RISK] * 143))
    (article,) = root.by_id("findings").all("article")
    assert "At risk broker-a · 143 segments" in article.text
    assert "143.0 GiB will be deleted from 2026-11-20 15:00:00 UTC on" in article.text
    assert "140 more like this" in article.text
    assert "is deleted at 2026-11-20 15:00:00 UTC: its age, at an hour of deleteWhen" in article.all("li")[0].text
    assert [code.text for code in article.of_class("command")[0].all("code")] == [COMMAND]
    assert root.all("h1")[0].text == "1 store has segments at risk within 12 h"
    assert "Next deletion2026-11-20 15:00:00 UTC, in 1 h" in root.of_class("facts")[0].text


def test_lost_segments_and_replaced_stores_are_shown() -> None:
    root = page_of(
        store(SegmentVerdict.WAITS, lost=(1000, 1000 + (5 << 20))), store(broker="b", replaced="not the one.")
    )
    articles = root.by_id("findings").all("article")
    assert "Lost broker-a" in articles[0].text
    assert "5,242,880 bytes (5.0 MiB) of the log were deleted before they were archived" in articles[0].text
    assert "not the one." in articles[1].text
    assert tiles_of(root)["lost"] == "5.0 MiB"


def test_a_full_disk_is_a_warning_and_a_filling_disk_a_note() -> None:
    root = page_of(store(SegmentVerdict.WAITS, disks=[Disk(1, 80 << 30, 100 << 30, growth=(1 << 30) / 3600)]))
    articles = root.by_id("findings").all("article")
    assert [each.attributes["class"] for each in articles] == ["notice warning", "notice info", "notice info"]
    assert "broker-a, over 75 % now" in articles[0].text
    assert "over 85 % in 5 h, at 2026-11-20 19:00:00 UTC" in articles[1].text
    row = table_of(root.by_id("disks"))[1]
    assert row[:4] == ["broker-a", "80.0 %", "100.0 GiB", "1.0 GiB"]
    assert root.of_class("verdict")[0].attributes["class"] == "verdict warning"


def test_hostile_names_are_escaped() -> None:
    def shown(name: str) -> str:
        return text_of(store(SegmentVerdict.AT_RISK, broker=name, lost=(0, 1), replaced=name))

    assert_self_contained(shown(HOSTILE))
    plain, hostile = (parse_page(shown(name)) for name in ("x", HOSTILE))
    assert [one.name for one in plain.inner] == [one.name for one in hostile.inner]


def test_many_stores_with_many_segments_are_bounded() -> None:
    mixed = [SegmentVerdict.AT_RISK, SegmentVerdict.ARCHIVED] * 20
    text = text_of(*(store(*mixed, broker=f"broker-{number}", lost=(0, 1)) for number in range(300)))
    assert len(text.encode()) < 2_000_000
    root = parse_page(text)
    assert len(table_of(root.by_id("forecast"))) == 1 + MAX_ROWS
    assert f"{300 * 40 - MAX_ROWS:,} more rows are left out of this page." in root.text
    assert "500 more groups" in root.text


# --- the command ---


def test_the_command_writes_a_page_with_and_without_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10))
    page = tmp_path / "guard.html"
    arguments = ["--store", str(growing.store), "--lake", growing.lake.root, "--quiet", "--html", str(page)]
    moment = time.time() - 60
    os.utime(growing.store / "commitlog" / f"{0:020d}", (moment, moment))
    assert guard.main(arguments) == 0
    assert f"There is no lake in {growing.lake.root} yet" in parse_page(page.read_text()).by_id("runs").text
    growing.archive()
    assert guard.main(arguments) == 0
    assert table_of(parse_page(page.read_text()).by_id("runs"))[1][3] == "10"
    assert guard.main([*arguments[:2], "--lake", str(growing.store), "--html", str(page)]) == 2
    assert "is not a lake" in parse_page(page.read_text()).all("h1")[0].text
    capsys.readouterr()


def test_the_command_on_the_page_archives_under_the_same_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10))
    moment = time.time() - 200 * 3600
    for number in (0, 1):
        segment = growing.store / "commitlog" / f"{number * SEGMENT:020d}"
        segment.write_bytes((growing.store / "commitlog" / f"{0:020d}").read_bytes())
        os.utime(segment, (moment, moment))
    page = tmp_path / "guard.html"
    arguments = ["--store", str(growing.store), "--lake", growing.lake.root, "--within", "48h", "--quiet"]
    assert guard.main([*arguments, "--broker", "other", "--html", str(page)]) == 3
    lines = [each.text for block in parse_page(page.read_text()).of_class("command") for each in block.all("code")]
    assert lines == [f"commitlake archive --store {growing.store} --broker other --lake {growing.lake.root}"]
    capsys.readouterr()
