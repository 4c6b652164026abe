"""Tests of the page of a story: its verdict, outcomes, cautions and escaped texts."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from commitlake.connectors.printable import escape_line
from commitlake.jobs.lineage.report import MAX_CAUTIONS, MAX_OUTCOMES, lineage_report, story_verdict
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.lineage.message_history import Evidence, Outcome, OutcomeState, Story
from commitlake.schemas.report import Kind
from tests.support.html_pages import assert_self_contained, parse_page, table_of
from tests.support.stories import HOSTILE, hostile_story, many_messages, order_story


def text_of(story: Story) -> str:
    return render_page(lineage_report(story, [("Lake", "/data/lake")]))


def test_the_page_has_the_sentence_sections_and_facts_of_the_story() -> None:
    text = text_of(order_story())
    assert_self_contained(text)
    root = parse_page(text)
    assert root.all("h1")[0].text == (
        "key order-4711: 1 waiting, 1 redriven, 2 consumed. Waiting in level 18, due Sat 2026-11-21 17:52:00."
    )
    assert [heading.text for heading in root.all("h2")] == [
        "Outcomes", "What happened", "Not known", "Each step",
    ]  # fmt: skip
    facts = {fact.all("dt")[0].text: fact.all("dd")[0].text for fact in root.of_class("facts")[0].all("div")}
    assert facts == {
        "Lake": "/data/lake", "Asked": "key order-4711", "Lake complete until": "2026-11-21 15:53:20 UTC",
        "Steps": "13",
    }  # fmt: skip


def test_outcomes_are_rows_with_their_proof_and_the_worst_is_first() -> None:
    rows = table_of(parse_page(text_of(order_story())).by_id("outcomes"))[1:]
    assert [row[0][1:] for row in rows] == ["waiting", "redriven", "consumed", "consumed"]
    assert rows[1][1:] == [
        "dead letter of billing, redriven after 1.1 d", "billing", "2026-11-20 14:00:10", "stored records",
        "9. dead letter of billing",
    ]  # fmt: skip


def test_every_link_has_a_target() -> None:
    root = parse_page(text_of(many_messages(30)))
    anchors = {one.attributes.get("id") for one in root.inner}
    links = {one.attributes["href"] for one in root.inner if "href" in one.attributes}
    assert {link.removeprefix("#") for link in links} <= anchors
    ids = [one.attributes["id"] for one in root.inner if "id" in one.attributes]
    assert len(ids) == len(set(ids))


def test_hostile_texts_are_escaped_and_the_page_stays_small() -> None:
    text = text_of(hostile_story())
    assert len(text) < 1_000_000
    assert_self_contained(text)
    root = parse_page(text)
    assert len(root.all("script")) == 1
    assert not [one for one in root.inner if "onload" in one.attributes]
    assert root.by_id("picture").all("bdi")[0].text.startswith(escape_line(HOSTILE)[:20])
    assert "\x00" not in text
    assert "\u202e" not in text
    assert f"{200 - MAX_CAUTIONS} more remarks are left out" in root.by_id("cautions").text


def test_a_large_story_is_folded_with_a_note() -> None:
    text = text_of(many_messages(3_000, topics=40))
    assert len(text) < 5_000_000
    root = parse_page(text)
    assert "5,000 of 6,000 steps are folded" in root.by_id("picture").text
    assert len(root.by_id("picture").of_class("graph")[0].all("a")) == 1_000
    assert f"The worst {MAX_OUTCOMES} of 3,000 are shown." in root.by_id("outcomes").text
    assert root.all("h1")[0].text == "key customer-1: 30 dead letters, 2,970 consumed. Dead letter of billing."


def test_matching_records_that_are_not_in_the_story_are_counted() -> None:
    story = replace(order_story(), cautions=[], not_shown=1_200)
    assert (
        "Not in this story: 1,200 more records that match the question."
        in parse_page(text_of(story)).by_id("cautions").text
    )


def test_the_page_of_a_story_without_steps_states_that_no_message_was_found() -> None:
    story = Story("key nobody", None, [], [], [], ["only the newest 30 days were looked at"])
    page = lineage_report(story, [])
    assert page.verdict.sentence == "No message in the lake has key nobody."
    assert "only the newest 30 days" in parse_page(render_page(page)).by_id("cautions").text


@pytest.mark.parametrize("state", OutcomeState)
def test_a_single_outcome_is_the_verdict(state: OutcomeState) -> None:
    story = order_story()
    outcome = Outcome(story.steps[2].id, state, "it is so", Evidence.NONE, at=datetime.datetime.now(datetime.UTC))
    found = story_verdict(replace(story, outcomes=[outcome]))
    assert found.sentence == "key order-4711: it is so."
    assert (found.kind is Kind.CRITICAL) == (state in {OutcomeState.DEAD, OutcomeState.OVERDUE})


def test_the_verdict_without_outcomes_states_that_none_is_known() -> None:
    assert story_verdict(replace(order_story(), outcomes=[])).sentence == (
        "key order-4711: 13 steps; the outcome is not known."
    )
