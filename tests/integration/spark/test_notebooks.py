"""The notebooks run on a Spark session, as scripts and on Databricks, and have the figures of the messages sent."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from commitlake.jobs.cli import main as cli
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.edges.table_update import follow_edges
from tests.support.browsers import WIDE, opened_tab, running_browser
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.notebook_scripts import NOTEBOOKS, Widgets, printed_table, run_notebook
from tests.support.odd_logs import GROUP, SOUND, write_odd_and_plain

pytestmark = pytest.mark.usefixtures("spark")

NAMES = (
    "an_orders_life", "archive_health", "dead_letters", "how_keys_flow", "lag_analysis", "orders_that_got_stuck",
    "tps_and_capacity",
)  # fmt: skip
HOSTILE = "$\\frac{1}{0}$ <script>alert(1)</script> \u202e\x1b[31m%s"
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SNAPSHOTS = ((6, 5), (7, 7), (8, 8), (9, 8))
"""Hours after midnight, and the offset that the group `billing` had then in each of two queues."""
ORDERS, PAID, SHIPPED = 24, 10, 7
"""Orders; the first of them were paid, half an hour later, and fewer were shipped, an hour later."""
MESSAGES = ORDERS + PAID + SHIPPED + 3
QUICK = ("archive_health", "dead_letters")
ASKED = {"an_orders_life": ("--key", "order-1")}
TWO_OF_THEM = pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.long("the same way as the others"))
        for name in NAMES
    ],
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """An order every half hour; `billing` stops at eight in each queue; three dead letters."""
    growing = GrowingLake(tmp_path_factory.mktemp("notebooks"))
    sent = [("orders", number, number * HOUR_MS // 2) for number in range(ORDERS)]
    sent += [("payments", number, (number + 1) * HOUR_MS // 2 + MINUTE_MS) for number in range(PAID)]
    sent += [("shipments", number, (number + 2) * HOUR_MS // 2 + 2 * MINUTE_MS) for number in range(SHIPPED)]
    messages = [
        new_message(number, topic=topic, queue_id=number % 2, born_timestamp=MIDNIGHT_MS + after_ms)
        for topic, number, after_ms in sorted(sent, key=lambda one: one[2])
    ]
    dead = [
        new_message(
            ORDERS + number,
            topic=f"%DLQ%{HOSTILE}" if number else "%DLQ%billing",
            queue_id=0,
            reconsume_times=3,
            born_timestamp=MIDNIGHT_MS + number * HOUR_MS,
            properties=(("RETRY_TOPIC", HOSTILE), ("TAGS", HOSTILE), ("EXCEPTION", HOSTILE)),
        )
        for number in range(3)
    ]
    growing.write([*messages, *dead])
    growing.archive()
    follow_edges(growing.lake)
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    for hours, offset in SNAPSHOTS:
        table = {"orders@billing": {0: offset, 1: offset}, f"orders@{HOSTILE}": {0: hours, 1: hours}}
        path.write_text(json.dumps({"offsetTable": table}))
        seconds = MIDNIGHT_MS // 1000 + hours * 3600
        os.utime(path, (seconds, seconds))
        assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


@dataclass(frozen=True)
class Output:
    """Output of a notebook, and the folder of its pictures."""

    text: str
    plots: Path


@pytest.fixture(scope="module")
def outputs(
    growing: GrowingLake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Output]:
    """Each notebook, run once as a script, in the session that is there."""
    found = {}
    for name in NAMES:
        plots = tmp_path_factory.mktemp(name)
        found[name] = Output(run_notebook(name, growing.lake.root, "--plots", str(plots), *ASKED.get(name, ())), plots)
    return found


def test_lag_is_that_of_the_snapshots(outputs: Mapping[str, Output]) -> None:
    printed = outputs["lag_analysis"].text
    # Until nine, ten orders are stored in one queue and nine in the other; eight of each are consumed. No filter of the
    # group is known, so it may want fewer.
    groups = {row[0]: row for row in printed_table(printed, "Groups")}
    assert groups["billing"] == ["billing", "2023-11-15T09:00:00.000Z", "2", "2", "0", "3", *groups["billing"][6:]]
    assert groups["billing"][9] == "3600.0"
    assert groups[SHOWN][2:6] == ["2", "1", "0", "1"]
    assert len(printed_table(printed, "Queues")) == 3
    behind = [row for row in printed_table(printed, "Messages behind") if row[1] == "billing"]
    assert [row[2] for row in behind] == ["3", "1", "1", "3"]


@pytest.mark.long("the same notebook runs without a choice, and lag at a past time is compared, each time")
def test_a_past_time_and_groups_can_be_selected(growing: GrowingLake) -> None:
    printed = run_notebook("lag_analysis", growing.lake.root, "--at", "2023-11-15T07:00", "--group", "billing,bilings")
    (billing,) = printed_table(printed, "Groups")
    assert billing[:6] == ["billing", "2023-11-15T07:00:00.000Z", "2", "1", "0", "1"]
    assert [row[2] for row in printed_table(printed, "Messages behind")] == ["3", "1"]


def test_rates_count_the_messages_that_were_sent(outputs: Mapping[str, Output]) -> None:
    printed = outputs["tps_and_capacity"].text
    topics = {row[0]: row[1:6] for row in printed_table(printed, "Topics")}
    assert topics["orders"][:4] == [str(ORDERS), str(ORDERS), "0", "0"]
    assert topics["payments"][:2] == [str(PAID)] * 2
    assert topics[f"%DLQ%{SHOWN}"][:4] == ["2", "0", "0", "2"]
    points = [row for row in printed_table(printed, "Messages per second") if row[1] == "orders"]
    assert len(points) == ORDERS / 2
    assert points[0][:2] == ["2023-11-15T00:00:00", "orders"]
    assert {round(float(row[2]) * 3600) for row in points} == {2}
    ((broker, day, gib, days),) = printed_table(printed, "Log by day")
    size = sum(int(row[4]) for row in topics.values())
    assert (broker, day) == ("broker-a", "2023-11-15T00:00:00.000Z")
    assert float(gib) == pytest.approx(size / 2**30)
    assert float(days) == pytest.approx(100 / float(gib))


def test_causes_of_dead_letters_are_counted(outputs: Mapping[str, Output]) -> None:
    printed = outputs["dead_letters"].text
    first, second = printed_table(printed, "Causes")
    assert first[:7] == [SHOWN, SHOWN, SHOWN, "3", SHOWN, "2", "0"]
    assert first[7:] == ["2023-11-15T01:00:00.000Z", "2023-11-15T02:00:00.000Z"]
    assert second[0] == "billing"
    assert [row[1:] for row in printed_table(printed, "Dead letters by hour")] == [
        ["billing", "1"],
        [SHOWN, "1"],
        [SHOWN, "1"],
    ]


def test_the_health_of_an_archive_is_shown(outputs: Mapping[str, Output], growing: GrowingLake) -> None:
    printed = outputs["archive_health"].text
    ((_, late),) = printed_table(printed, "The last run")
    assert late == "False"
    assert printed_table(printed, "Stores")[0][:3] == ["broker-a", "2023-11-15T11:30:00.000Z", str(MESSAGES)]
    assert "Ranges of logs that are not archived: none" in printed
    assert "Expectations: none" in printed
    assert str(MESSAGES) in printed_table(printed, "The last runs")[0]


def test_an_orders_messages_and_its_story_are_shown(outputs: Mapping[str, Output]) -> None:
    printed = outputs["an_orders_life"].text
    assert [row[1] for row in printed_table(printed, "Messages")] == ["orders", "payments", "shipments"]
    assert {row[-1] for row in printed_table(printed, "Messages")} == {"body"}
    assert "key order-1: " in printed
    assert "sent to orders" in printed_table(printed, "Steps")[0]


def test_hops_and_paths_of_keys_are_counted(outputs: Mapping[str, Output]) -> None:
    printed = outputs["how_keys_flow"].text
    half_an_hour = 1_900_000  # 31 minutes, rounded up to two digits
    times = [str(half_an_hour)] * 3
    assert printed_table(printed, "Hops") == [
        ["orders", "payments", str(PAID), *times],
        ["payments", "shipments", str(SHIPPED), *times],
    ]
    assert len([row for row in printed_table(printed, "95 % within") if row[1] == "orders > payments"]) == 6
    paths = [row[:2] for row in printed_table(printed, "Paths")]
    assert paths == [
        ["orders", str(ORDERS - PAID)],
        ["orders payments shipments", str(SHIPPED)],
        ["orders payments", str(PAID - SHIPPED)],
    ]


def test_stuck_orders_are_found(outputs: Mapping[str, Output]) -> None:
    printed = outputs["orders_that_got_stuck"].text
    assert printed_table(printed, "Keys by outcome") == [["payments", "delivered", str(PAID - SHIPPED)]]
    keys = printed_table(printed, "Stuck keys")
    assert [row[:3] for row in keys] == [[f"order-{number}", "orders payments", "delivered"] for number in (7, 8, 9)]
    # The last minute with messages ends at 11:31, and order-7 was paid at 04:01.
    assert keys[0][3:5] == ["2023-11-15T04:01:00.000Z", str(7 * 60 + 30)]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_reaches_a_terminal_unescaped(name: str, outputs: Mapping[str, Output]) -> None:
    assert not set("\x1b\u202e") & set(outputs[name].text)


@pytest.mark.parametrize("name", NAMES)
def test_each_notebook_has_pictures(name: str, outputs: Mapping[str, Output]) -> None:
    assert list(outputs[name].plots.iterdir())


@TWO_OF_THEM
def test_pictures_are_drawn_without_any_request(name: str, outputs: Mapping[str, Output]) -> None:
    with running_browser() as browser:
        for path in sorted(outputs[name].plots.iterdir()):
            with opened_tab(browser, WIDE) as page:
                page.set_default_timeout(150_000)  # a page has 5 MB of JavaScript
                page.goto(path.as_uri())
                page.wait_for_selector("svg", state="attached")
                assert page.evaluate("document.querySelectorAll('script[src], link[href], img[src]').length") == 0


@TWO_OF_THEM
def test_databricks_has_widgets_and_displays_frames(
    name: str, growing: GrowingLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["ipykernel", "-f", "connection.json"])
    monkeypatch.chdir(tmp_path)
    shown: list[Any] = []
    pages: list[str] = []
    dbutils = type("Dbutils", (), {"widgets": Widgets({"lake": growing.lake.root, "key": "order-1"})})
    names = {"dbutils": dbutils, "display": shown.append, "displayHTML": pages.append, "spark": spark}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(NOTEBOOKS / f"{name}.py"), names, "__main__")
    assert shown
    assert pages
    assert any(isinstance(frame, DataFrame) for frame in shown)
    assert printed.getvalue().strip()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def odd_and_plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The lakes of an odd log, and of the same log without the odd messages."""
    stores = write_odd_and_plain(tmp_path_factory.mktemp("odd"))
    lakes = [str(store.parent / "lake") for store in stores]
    for store, lake in zip(stores, lakes, strict=True):
        assert cli.main(["archive", "--store", str(store), "--lake", lake, "--local", "--quiet"]) in {0, 3}
    return lakes[0], lakes[1]


@pytest.mark.long("every job with odd messages")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("an_orders_life", ["--key", "order-10"]),
        ("dead_letters", ["--group", GROUP]),
        ("lag_analysis", []),
        ("tps_and_capacity", ["--topic", SOUND[0]]),
    ],
)
def test_figures_of_sound_topics_are_the_same(
    odd_and_plain: tuple[str, str], name: str, arguments: Sequence[str]
) -> None:
    odd, plain = (run_notebook(name, lake, *arguments) for lake in odd_and_plain)
    assert SOUND[0] in plain or GROUP in plain
    assert odd == plain


@pytest.mark.long("every job with odd messages")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_about_odd_messages_ends_well(odd_and_plain: tuple[str, str], name: str) -> None:
    assert run_notebook(name, odd_and_plain[0], *(["--key", "a"] if name == "an_orders_life" else []))
