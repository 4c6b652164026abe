"""Tests of the pages in Chromium, wide and on a phone: numbers, sorting, searching, and no requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from commitlake.jobs.audit import command as audit
from commitlake.jobs.guard import command as guard
from commitlake.jobs.lag import command as lag
from commitlake.jobs.tps import command as tps
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from tests.support.browsers import WIDE
from tests.support.html_pages import Element, parse_page, table_of
from tests.support.lakes import GrowingLake

pytestmark = pytest.mark.long("starts Chromium, which takes seconds; what pages hold is read from their HTML each time")


@pytest.fixture(scope="module")
def pages(shop: GrowingLake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each job that writes one from an existing lake."""
    folder = tmp_path_factory.mktemp("pages")
    of_lake = ["--lake", shop.lake.root]
    of_both = ["--store", str(shop.store), *of_lake]
    commands = {
        "tps": (tps.main, [*of_lake, "--compare", "day"]),
        "lag": (lag.main, of_lake),
        "guard": (guard.main, of_both),
        "audit": (audit.main, [*of_both, "--local"]),
        "verify": (verify.main, [str(shop.store), *of_lake, "--local"]),
    }
    found = {name: folder / f"{name}.html" for name in commands}
    for name, (main, arguments) in commands.items():
        # In a store written by a test, verify may report missing files that only a broker writes.
        assert main([*arguments, "--html", str(found[name]), "--quiet"]) in {ExitCode.OK, ExitCode.DAMAGE}
    return found


def rows(page: Page, section: str, column: int) -> list[str]:
    """Return the visible texts of a column."""
    cells = page.locator(f"#{section} table.cards tbody tr:visible > :nth-child({column + 1}) > span")
    return cells.all_inner_texts()


def written(path: Path, section: str) -> list[list[str]]:
    """Return a table as it is in the file."""
    root: Element = parse_page(path.read_text())
    return table_of(root.by_id(section))[1:]


@pytest.mark.parametrize(
    ("name", "section", "columns"),
    [
        ("tps", "groups", (0, 1, 2)),
        ("lag", "groups", (0, 1, 2)),
        ("guard", "forecast", (0, 3, 4)),
        ("audit", "compared", (0, 2, 3, 4)),
        ("verify", "runs", (0, 1, 3, 4, 5, 6)),
    ],
)
def test_the_browser_shows_the_numbers_of_the_file_within_the_width(
    opened: Page, width: int, pages: dict[str, Path], name: str, section: str, columns: tuple[int, ...]
) -> None:
    opened.goto(pages[name].as_uri())
    expected = written(pages[name], section)
    assert expected
    for column in columns:
        assert [text.replace("\n", "") for text in rows(opened, section, column)] == [row[column] for row in expected]
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    too_wide = "table => table.scrollWidth > table.clientWidth"
    assert opened.evaluate(f"[...document.querySelectorAll('.table')].filter({too_wide}).length") == 0
    head = opened.locator(f"#{section} thead").bounding_box()
    assert head is not None
    assert (head["height"] > 10) == (width == WIDE)  # cards have no heading


def test_a_table_is_sorted_and_searched(opened: Page, width: int, pages: dict[str, Path]) -> None:
    opened.goto(pages["tps"].as_uri())
    messages = [int(row[1].replace(",", "")) for row in written(pages["tps"], "groups")]
    if width == WIDE:
        head = opened.locator("#groups thead th", has_text="messages")
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        head.get_by_role("button").click()
    else:
        opened.locator("#groups select").select_option(label="messages, smallest first")
    assert [int(text.replace(",", "")) for text in rows(opened, "groups", 1)] == sorted(messages)
    opened.locator("#groups input").fill("PAY")
    assert rows(opened, "groups", 0) == ["payments"]
    assert opened.locator("#groups .count").inner_text() == f"1 of {len(messages)} rows"


def test_keys_show_the_numbers_of_a_chart(opened: Page, pages: dict[str, Path]) -> None:
    opened.goto(pages["tps"].as_uri())
    chart = opened.locator("#rates figure").first
    plot = chart.locator("svg.chart")
    plot.focus()
    plot.press("Home")
    first = table_of(parse_page(pages["tps"].read_text()).by_id("rates").all("figure")[0])[1]
    shown = chart.locator(".readout").inner_text()
    assert shown.startswith(f"{first[0]} UTC: ")
    assert f"orders {first[1]}" in shown
    plot.press("ArrowRight")
    assert not chart.locator(".readout").inner_text().startswith(first[0])


def test_light_and_dark_can_be_selected(opened: Page, pages: dict[str, Path]) -> None:
    opened.goto(pages["lag"].as_uri())
    colour = "getComputedStyle(document.body).backgroundColor"
    light = opened.evaluate(colour)
    opened.get_by_role("button", name="Switch to dark colours").click()
    dark = opened.evaluate(colour)
    assert light != dark
    opened.emulate_media(color_scheme="dark")
    opened.get_by_role("button", name="Switch to light colours").click()
    assert opened.evaluate(colour) == light


def test_a_command_is_copied(opened: Page, pages: dict[str, Path]) -> None:
    opened.goto(pages["lag"].as_uri())
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = opened.locator(".copy").first
    button.click()
    opened.get_by_role("button").filter(has_text="Copied").first.wait_for()
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied == opened.locator(".command code").first.inner_text()
