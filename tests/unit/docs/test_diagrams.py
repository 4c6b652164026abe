"""Mermaid flowcharts of the documentation as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs.generate.diagrams import BLOCK, DiagramError, parse, svg

DOCS = Path(__file__).parents[3] / "docs"
CHART = """flowchart LR
    log["<b>log</b><br/>of a broker"] -->|"walk & check"| rows{sound?}
    rows --> lake --> pages
    rows -->|no| page["a page says why"]
"""


def test_chart_has_its_nodes_and_edges() -> None:
    chart = parse(CHART)
    assert list(chart.nodes) == ["log", "rows", "lake", "pages", "page"]
    assert chart.nodes["log"].lines == ["<b>log</b>", "of a broker"]
    assert chart.nodes["rows"].is_choice
    assert chart.edges == [
        ("log", "rows", "walk & check"), ("rows", "lake", ""), ("lake", "pages", ""), ("rows", "page", "no"),
    ]  # fmt: skip


def test_picture_has_all_texts_and_arrows() -> None:
    root = ET.fromstring(svg(CHART))
    texts = [element.text for element in root.iter("tspan")]
    assert sorted(texts, key=str) == [
        "a page says why", "lake", "log", "no", "of a broker", "pages", "sound?", "walk & check",
    ]  # fmt: skip
    assert sum(element.get("marker-end") is not None for element in root.iter("path")) == 4


@pytest.mark.parametrize("text", ["pie\n  a", "flowchart TD\n  a ==> b", "flowchart TD\n  a --> ()"])
def test_unknown_form_is_an_error(text: str) -> None:
    with pytest.raises(DiagramError, match="expected"):
        svg(text)


def test_every_diagram_of_the_documentation_is_drawn() -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    blocks = [block["text"] for page in pages for block in BLOCK.finditer(page)]
    assert len(blocks) >= 2
    for block in blocks:
        ET.fromstring(svg(block))
