"""The diagram of paths with widths."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from commitlake.jobs.report.flow_diagram import MAX_STOPS, FlowBand, flow_diagram_html

FLOWS = [FlowBand(["orders", "payments", "mails"], 900, "path-1"), FlowBand(["orders", "mails"], 100, "path-2")]


def drawn(flows: list[FlowBand]) -> ET.Element:
    """Return a diagram as an element."""
    return ET.fromstring(flow_diagram_html("Keys by path", "A note", flows))


def test_each_path_is_a_link_as_wide_as_its_number() -> None:
    links = {link.get("href"): link for link in drawn(FLOWS).iter("a")}
    assert {href: link.findtext("title") for href, link in links.items()} == {
        "#path-1": "orders > payments > mails: 900",
        "#path-2": "orders > mails: 100",
    }
    widths = {}
    for href, link in links.items():
        path = link.find("path")
        assert path is not None
        widths[href] = {float(width) for width in re.findall(r"v([\d.]+)C", path.get("d", ""))}
    assert widths == {"#path-1": {234.0}, "#path-2": {26.0}}


def test_stops_after_the_same_number_of_steps_are_below_each_other() -> None:
    found = [(text.findtext("title"), text.get("x")) for text in drawn(FLOWS).iter("text")]
    assert found == [("orders: 1,000", "0"), ("payments: 900", "168"), ("mails: 900", "336"), ("mails: 100", "168")]
    bars = [(bar.get("x"), bar.get("y"), bar.get("height")) for bar in drawn(FLOWS).iter("rect")]
    assert bars == [("0", "26", "260"), ("168", "26", "234"), ("336", "26", "234"), ("168", "294", "26")]


def test_a_path_of_few_is_visible_and_a_long_one_is_cut() -> None:
    flows = [FlowBand(["a"], 1_000_000, "x"), FlowBand([str(number) for number in range(50)], 1, "y")]
    svg = next(drawn(flows).iter("svg"))
    assert svg.get("width") == str(168 * MAX_STOPS)
    assert len(list(svg.iter("rect"))) == 1 + MAX_STOPS
    assert {bar.get("height") for bar in svg.iter("rect")} == {"260", "1.5"}


def test_names_are_escaped_and_no_path_is_no_failure() -> None:
    name = "<b>&" + "x" * 100
    assert [text.findtext("title") for text in drawn([FlowBand([name], 1, "z")]).iter("text")] == [f"{name}: 1"]
    assert list(drawn([]).iter("a")) == []
