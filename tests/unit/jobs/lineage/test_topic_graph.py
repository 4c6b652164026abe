"""Tests of the page of a graph of topics: its verdict, its arcs, its table, and escaped texts."""

from __future__ import annotations

import datetime

from commitlake.jobs.lineage.topic_graph import MAX_TOPICS, sort_topics_by_flow, topics_report
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.lineage.topic_graph import TopicGraph, TopicLink, TopicNode
from tests.support.html_pages import parse_page
from tests.support.stories import HOSTILE

SECOND = datetime.timedelta(seconds=1)
START = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def link(source: str, target: str, passes: int) -> TopicLink:
    return TopicLink(source, target, passes, passes, 4.2 * SECOND, 90 * SECOND)


def graph(*links: TopicLink) -> TopicGraph:
    topics = sorted({topic for one in links for topic in (one.source, one.target)})
    return TopicGraph(START, START + 86_400 * SECOND, [TopicNode(topic, 7, 3) for topic in topics], links, 2)


def test_the_picture_and_the_table_have_each_link() -> None:
    root = parse_page(
        render_page(topics_report(graph(link("orders", "payments", 9), link("payments", "orders", 1)), []))
    )
    assert (
        "4 links between 2 topics. Most keys pass from orders to payments: 9 times, with a median of 4.2 s."
        in root.text
    )
    arcs = [one for one in root.all("path") if "feed" in one.attributes.get("class", "").split()]
    assert [one.attributes["class"] for one in arcs] == ["feed", "feed back"]
    assert "2 more links are not shown." in root.text


def test_topics_are_above_the_topics_that_they_feed() -> None:
    links = [link("b", "c", 5), link("a", "b", 3), link("c", "a", 1)]
    assert sort_topics_by_flow(links) == ["a", "b", "c"]
    assert sort_topics_by_flow([link("x", "y", 1), link("y", "z", 1)]) == ["x", "y", "z"]


def test_only_the_topics_with_the_most_passes_are_drawn() -> None:
    links = [link(f"topic-{n}", f"topic-{n + 1}", 1000 - n) for n in range(200)]
    root = parse_page(render_page(topics_report(graph(*links), [])))
    assert len([one for one in root.all("text") if one.attributes.get("class") == "feed-name"]) == MAX_TOPICS
    assert "161 links with fewer passes are not drawn" in root.text


def test_hostile_names_are_escaped() -> None:
    page = render_page(topics_report(graph(link(HOSTILE, "x" * 100_000, 1)), []))
    assert "<svg onload" not in page
    assert "\x1b" not in page


def test_a_time_without_links_is_stated() -> None:
    page = render_page(topics_report(TopicGraph(START, START + SECOND, [], []), []))
    assert "No key passes from one topic to another in this time." in page
