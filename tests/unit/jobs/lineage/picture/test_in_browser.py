"""Tests of the page of a story in Chromium, wide and on a phone, light and dark: content, keyboard, print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page

from commitlake.jobs.lineage.report import lineage_report
from commitlake.jobs.report.html_page import write_page
from commitlake.pipelines.lineage.message_history import Story
from tests.support.browsers import PHONE, WIDE, opened_tab
from tests.support.stories import BODY, hostile_story, many_messages, order_story

pytestmark = pytest.mark.long("starts Chromium, which takes seconds; what pages hold is read from their HTML each time")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a small, a hostile and a large story."""
    folder = tmp_path_factory.mktemp("stories")
    stories = {"order": order_story(), "hostile": hostile_story(), "many": many_messages(2_000, topics=40)}
    for name, story in stories.items():
        write_page(folder / f"{name}.html", lineage_report(story, [("Lake", "/data/lake")]))
    return {name: folder / f"{name}.html" for name in stories}


@pytest.fixture(params=[(width, scheme) for width in (WIDE, PHONE) for scheme in SCHEMES], ids=str)
def tab(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A tab for each width and each colour scheme."""
    width, scheme = request.param
    with opened_tab(browser, width, scheme) as page:
        yield page


def width_of(page: Page) -> int:
    size = page.viewport_size
    assert size is not None
    return size["width"]


def middle(locator: Locator) -> tuple[float, float]:
    box = locator.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def assert_shown(page: Page, story: Story) -> None:
    """Compare the visible content with the story."""
    links = page.locator(".step > a")
    assert links.locator("b bdi").all_inner_texts() == [step.title for step in story.steps]
    assert links.locator(".where > bdi").all_inner_texts() == [step.lane for step in story.steps]
    clocks = [f"{step.at:%H:%M:%S.%f}"[:-3] if step.at is not None else "time unknown" for step in story.steps]
    assert links.locator(".when").all_inner_texts() == clocks
    texts = page.locator("#outcomes table.cards tbody tr td:nth-child(2) > span").all_inner_texts()
    assert sorted(texts) == sorted(outcome.text for outcome in story.outcomes)


def test_the_page_shows_the_story_and_fits_the_width(tab: Page, pages: dict[str, Path]) -> None:
    story = order_story()
    tab.goto(pages["order"].as_uri())
    assert_shown(tab, story)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width_of(tab)
    nodes = tab.locator(".rail .glyph")
    assert nodes.count() == len(story.steps)
    for number in range(len(story.steps)):  # each node is next to the text of its step
        link, node = tab.locator(".step > a").nth(number), nodes.nth(number)
        assert abs(middle(link)[1] - middle(node)[1]) < 4
        words, place = link.locator(".what").bounding_box(), node.bounding_box()
        assert words is not None
        assert place is not None
        assert place["x"] + place["width"] <= words["x"] + 4


def test_text_has_enough_contrast(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    for selector, least in ((".what b", 4.5), (".where", 4.5), (".since >> nth=1", 4.5), (".lane-list li", 4.5)):
        assert contrast(tab, tab.locator(selector).first, "color") >= least, selector
    for number in range(tab.locator(".rail .glyph").count()):
        assert contrast(tab, tab.locator(".rail .glyph").nth(number), "color") >= 3, number


def contrast(page: Page, locator: Locator, name: str) -> float:
    """Return the contrast of an element's colour with that of a section, as defined by WCAG."""
    colours = [
        locator.evaluate(f"element => getComputedStyle(element).{name}"),
        page.locator("section").first.evaluate("element => getComputedStyle(element).backgroundColor"),
    ]
    light = sorted(map(luminance, colours))
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_step_that_is_clicked_shows_its_properties_and_body(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    panel = tab.locator(".panel")
    assert not panel.is_visible()
    tab.locator(".step > a").nth(6).click()
    assert panel.is_visible()
    assert panel.locator(".panel-title").inner_text() == "7. first retry of billing"
    found = dict(zip(panel.locator("dt").all_inner_texts(), panel.locator("dd").all_inner_texts(), strict=True))
    record = order_story().steps[6].record
    assert record is not None
    assert (found["topic"], found["message id"]) == (record.topic, record.msg_id)
    assert found["phone"] == record.properties["phone"]
    assert "".join(panel.locator("pre").inner_text().split()) == BODY.decode()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width_of(tab)
    link, box = tab.locator(".step > a").nth(6).bounding_box(), panel.bounding_box()
    assert link is not None
    assert box is not None
    assert link["y"] + link["height"] <= box["y"] + 1 or link["x"] + link["width"] <= box["x"]  # it is not hidden
    panel.get_by_role("link", name="9. dead letter of billing").click()
    assert panel.locator(".panel-title").inner_text() == "9. dead letter of billing"
    assert tab.url.endswith("#step-9")
    tab.keyboard.press("Escape")
    assert not panel.is_visible()
    assert tab.evaluate("document.activeElement.dataset.row") == "9"


def test_keys_move_between_steps(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    tab.locator(".step > a").first.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    title = tab.locator(".panel-title")
    assert title.inner_text() == "3. committed to orders"
    assert tab.locator("#status").inner_text() == "Step 3. committed to orders"
    tab.keyboard.press("End")
    assert title.inner_text() == "13. not delivered so far"
    assert tab.locator('.step > a[tabindex="0"]').count() == 1
    assert tab.locator('.step > a[aria-current="true"]').get_attribute("data-row") == "13"


def test_the_lines_of_other_messages_are_faded(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    tab.locator(".step > a").nth(11).click()
    edges = tab.locator(".rail .edge")
    seen = {"0": set[float](), "1": set[float]()}
    for number in range(edges.count()):
        message = edges.nth(number).get_attribute("data-message") or ""
        seen[message].add(float(edges.nth(number).evaluate("path => getComputedStyle(path).opacity")))
    assert seen == {"0": {0.22}, "1": {1.0}}


def test_a_node_of_the_overview_and_a_row_of_the_table_open_the_step(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    tab.locator('.overview .glyph[data-row="12"]').click()
    assert tab.locator(".panel-title").inner_text().startswith("12. ")
    tab.locator(".panel-close").click()
    tab.locator("#outcomes a").first.click()
    assert tab.locator(".panel-title").inner_text().startswith("12. ")
    box = tab.locator(".step > a.is-chosen").bounding_box()
    assert box is not None
    assert 0 <= box["y"] <= 900 - box["height"] + 1


def test_an_address_with_a_step_opens_the_step(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(f"{pages['order'].as_uri()}#step-5")
    assert tab.locator(".panel-title").inner_text() == "5. failed in billing"


def test_hostile_texts_are_shown_and_not_executed(tab: Page, pages: dict[str, Path]) -> None:
    tab.on("dialog", lambda dialog: pytest.fail(dialog.message))
    tab.goto(pages["hostile"].as_uri())
    for number in range(13):
        tab.locator(".step > a").nth(number).click()
        assert tab.locator(".panel-title").inner_text().startswith(f"{number + 1}. </script><svg onload=alert(1)>")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width_of(tab)
    assert tab.locator("svg[onload], bdi svg").count() == 0


def test_a_thousand_steps_are_usable(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["many"].as_uri())
    assert tab.locator(".step > a").count() == 1_000
    assert tab.evaluate("performance.getEntriesByType('navigation')[0].domComplete") < 10_000
    spent = tab.evaluate(
        """() => {
          const links = document.querySelectorAll(".step > a");
          const began = performance.now();
          for (const number of [0, 999, 500]) { links[number].click(); links[number].getBoundingClientRect(); }
          return (performance.now() - began) / 3;
        }"""
    )
    assert spent < 1_000  # ms for a click; some ten on an idle machine
    assert tab.evaluate("document.documentElement.scrollWidth") <= width_of(tab)
    assert "3,000 of 4,000 steps are folded" in tab.locator("#picture figcaption").inner_text()


def test_print_has_the_whole_picture_without_panels_and_closed_parts(tab: Page, pages: dict[str, Path]) -> None:
    tab.goto(pages["order"].as_uri())
    tab.locator(".step > a").nth(11).click()
    tab.get_by_role("button", name=re.compile("Switch to")).click()
    tab.emulate_media(media="print")
    assert not tab.locator(".panel").is_visible()
    assert not tab.locator("#steps").is_visible()
    assert_shown(tab, order_story())
    whole, drawn = tab.locator("#picture").bounding_box(), tab.locator(".graph").bounding_box()
    assert whole is not None
    assert drawn is not None
    assert drawn["width"] > whole["width"] - 50
    assert tab.locator(".rail .edge:not(.is-on)").first.evaluate("path => getComputedStyle(path).opacity") == "1"
    assert luminance(tab.evaluate("getComputedStyle(document.body).color")) < 0.1  # dark text in every colour scheme


def test_details_can_be_opened_without_javascript(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": WIDE, "height": 900})
    page = context.new_page()
    page.goto(pages["order"].as_uri())
    page.locator(".step > a").nth(6).click()
    assert page.locator("#step-7").is_visible()  # a browser opens the element that a link points into
    assert "555-0199" in page.locator("#step-7").inner_text()
    context.close()
