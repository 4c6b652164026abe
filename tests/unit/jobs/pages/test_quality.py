"""The page of a judgement: whole, bounded, and safe with any name."""

from __future__ import annotations

import datetime
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.printable import printable_line
from commitlake.jobs.pages.bars import bars
from commitlake.jobs.pages.quality import render_page, write_page
from commitlake.pipelines.quality.report import QualityReport
from commitlake.schemas.quality.suites import SUITES
from tests.support.profiles import NOON, message, messages, profile_of
from tests.support.reports import figures_of, report_of

HOSTILE = "<script>alert('x')</script>\"&\u202e\x00\n${title}"
_VOID = {"meta", "rect"}


class Page(HTMLParser):
    """What a browser sees: tags, attributes and text; every tag closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        self.text.append(data)


def page_of(report: QualityReport, profile: pa.Table) -> Page:
    return Page(render_page(report, figures_of(profile), run_id="run"))


def test_a_good_run_has_a_page_that_says_so() -> None:
    page = page_of(report_of(), profile_of([*messages(range(2000)), message(3, topic="payments", broker="b")]))
    text = " ".join(page.text)
    assert "archived, without a fault" in page.text
    assert "All expectations are met." in text
    for shown in ("orders", "payments", "2,000", "39 of 39", "Run run, judged 2026-11-20 12:00:00 UTC"):
        assert shown in text
    assert page.tags.count("svg") == 3


def test_what_is_not_met_comes_first_and_says_why_and_what_to_do() -> None:
    example = {"broker": "a", "topic": "orders", "queue_id": 3}
    report = report_of(("no_message_is_dead", example), ("no_message_is_lost", example))
    text = " ".join(page_of(report, profile_of(messages(range(3)))).text)
    places = [
        text.index(words) for words in ("stopped: critical", "no message is lost", "no message is dead", "Topics")
    ]
    assert places == sorted(places)
    for suite in SUITES:
        for each in suite.expectations:
            assert (each.why in text) == (each.name in ("no_message_is_dead", "no_message_is_lost"))
    assert "What to do:" in text
    assert "orders" in text


def test_nothing_comes_from_elsewhere() -> None:
    text = render_page(report_of(), figures_of(profile_of(messages(range(3)))), run_id="r")
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img|<iframe", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_hostile_names_are_text() -> None:
    profile = profile_of([message(0, topic=HOSTILE, broker=HOSTILE), message(1)])
    report = report_of(("no_message_is_lost", {"topic": HOSTILE, HOSTILE: HOSTILE}))
    plain, hostile = (
        page_of(report_of(("no_message_is_lost", {"topic": "x", "y": "z"})), profile_of(messages([0, 1]))),
        page_of(report, profile),
    )
    assert set(hostile.tags) == set(plain.tags)
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    shown = printable_line(HOSTILE)
    assert hostile.text.count(shown) == 5  # as topic and broker; in an example as a heading and two cells
    assert "\x00" not in "".join(hostile.text)


def test_the_page_is_bounded() -> None:
    rows = [message(n * 700, topic=f"{n:04d}-" + "x" * 240, queue_offset=0) for n in range(1500)]
    text = render_page(report_of(), figures_of(profile_of(rows), most=20), run_id="r")
    assert len(text) < 60_000
    page = Page(text)
    assert "1,480 others" in page.text
    assert page.tags.count("svg") == 21


def test_a_run_without_messages_or_times_has_a_page() -> None:
    page_of(report_of(), profile_of([message()]).slice(0, 0))
    page_of(report_of(), profile_of([message(0, store_timestamp=None, queue_id=None)]))


def test_a_page_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quality.html"
    write_page(path, report_of(), figures_of(profile_of(messages([0]))), run_id="r")
    first = path.read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["quality.html"]
    monkeypatch.setattr(
        "commitlake.connectors.whole_files.os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        write_page(path, report_of(), figures_of(profile_of(messages([0, 1]))), run_id="r")
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["quality.html"]


def test_bars_are_where_their_time_is() -> None:
    hour = datetime.timedelta(hours=1)
    picture = bars({NOON: 10, NOON + 9 * hour: 5, NOON + 5 * hour: 0}, NOON, NOON + 10 * hour, 10)
    assert re.findall(r'<rect x="(\d+)" y="(\d+)" width=".8" height="(\d+)"', picture) == [
        ("0", "0", "100"),
        ("9", "50", "50"),
    ]
