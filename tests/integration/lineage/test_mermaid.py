"""Mermaid itself draws the output of `lineage --mermaid`: every label is exactly the intended text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from commitlake.connectors.printable import escape_line
from commitlake.jobs.lineage.picture.mermaid import MAX_LABEL, MAX_STEPS, story_flowchart
from commitlake.pipelines.lineage.message_history import Edge, Story
from tests.servers.mermaid import mermaid_script
from tests.support.browsers import running_browser
from tests.support.stories import HOSTILE, hostile_story, many_messages, order_story, record_step

pytestmark = pytest.mark.long("starts Chromium and loads Mermaid, 5 MB; the form is checked by patterns each time")
RENDER = """async (text) => {
  await mermaid.parse(text);
  const drawn = await mermaid.render("drawn", text);
  document.getElementById("here").innerHTML = drawn.svg;
  const texts = (name) => [...document.querySelectorAll(`#here .${name}`)].map((label) => label.textContent);
  return { nodes: texts("nodeLabel"), edges: texts("edgeLabel").filter((text) => text) };
}"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    """A tab with Mermaid, set up as on websites: texts of diagrams are not trusted."""
    with running_browser() as browser:
        page = browser.new_page()
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.set_content('<div id="here"></div>')
        page.add_script_tag(path=mermaid_script())
        page.evaluate("mermaid.initialize({ startOnLoad: false, securityLevel: 'strict' })")
        yield page


def drawn(page: Page, story: Story) -> tuple[list[str], list[str]]:
    """Return the visible texts of nodes and of edges."""
    found = page.evaluate(RENDER, story_flowchart(story))
    return found["nodes"], list(dict.fromkeys(found["edges"]))


def cut(text: str) -> str:
    """Return a text as it is shown in a label."""
    return f"{escape_line(text)[:MAX_LABEL]}…" if len(text) > MAX_LABEL else escape_line(text)


def test_labels_are_the_texts_of_the_story(tab: Page) -> None:
    story = order_story()
    nodes, edges = drawn(tab, story)
    times = [f"{step.at:%Y-%m-%d %H:%M:%S} " if step.at is not None else "" for step in story.steps]
    expected = [time + step.title for time, step in zip(times, story.steps, strict=True)]
    assert sorted(nodes) == sorted([story.asked, *expected])
    assert all(any(found.endswith(edge.text) for found in edges) for edge in story.edges)
    assert tab.locator("#here .edgePaths path").count() == len(story.edges)


def test_hostile_labels_are_shown_as_text(tab: Page) -> None:
    nodes, _ = drawn(tab, hostile_story())
    assert nodes.count(f"0001-01-01 00:00:00 {cut(HOSTILE * 200)}") == 7
    assert cut(HOSTILE * 50) in nodes
    assert tab.locator("#here [onload], #here script, #here a").count() == 0


@pytest.mark.parametrize(
    "label",
    ["end", "`**bold**`", "<b>x</b>", "&lt;", "#35;", "fa:fa-ban", "$$x^2$$", "-->", "%% x", "click s1 call x()", '"',
     "\\n", "1. list", "- list", "Größe 注文 注文", "s1:::bad", "@{shape: x}", " ", "|x|", "javascript:alert(1)"],
)  # fmt: skip
def test_mermaid_keywords_are_shown_as_text(tab: Page, label: str) -> None:
    steps = [record_step(1, 0, "orders", label), record_step(2, 1, "orders", "other")]
    nodes, edges = drawn(tab, Story(label, None, steps, [Edge("x", steps[0].id, steps[1].id, None, label)], []))
    shown = sorted(node.replace("\u200b", "") for node in nodes)
    assert shown == sorted([label.strip(), f"2026-11-20 14:00:00 {label}".strip(), "2026-11-20 14:00:01 other"])
    assert [edge.replace("\u200b", "") for edge in edges] == ([label] if label.strip() else [])


def test_the_largest_story_is_drawn(tab: Page) -> None:
    nodes, _ = drawn(tab, many_messages(2_000))
    assert sum("steps folded" not in node and "step folded" not in node for node in nodes) == MAX_STEPS + 1
