"""Tests of details: every column, edge, property and body of a step, bounded and escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commitlake.jobs.lineage.picture import step_details as module
from commitlake.jobs.lineage.picture.picture_rows import choose_picture_rows
from commitlake.jobs.lineage.picture.step_details import MAX_BODY, body_text, indent_json, step_details_html
from commitlake.pipelines.lineage.message_history import Story
from tests.support.html_pages import Element, parse_page
from tests.support.stories import BODY, order_story, record_step


def shown(story: Story) -> Element:
    return parse_page(step_details_html(story, choose_picture_rows(story)))


def pairs(element: Element) -> dict[str, str]:
    return {div.all("dt")[0].text: div.all("dd")[0].text for div in element.all("div") if div.all("dt")}


def test_a_record_is_shown_with_its_columns_properties_and_body() -> None:
    story = order_story()
    step = shown(story).by_id("step-3")
    found = pairs(step)
    record = story.steps[2].record
    assert record is not None
    assert found["time (UTC)"] == "2026-11-20 14:00:00.432"
    assert (found["topic"], found["queue"], found["queue offset"]) == ("orders", "2", "1,203")
    assert (found["keys"], found["message id"], found["physical offset"]) == ("order-4711", record.msg_id, "5000")
    assert found["phone"] == "555-0199"
    (body,) = step.all("pre")
    assert "".join(body.text.split()) == BODY.decode()


def test_edges_are_links_in_both_directions() -> None:
    step = shown(order_story()).by_id("step-7")
    assert [item.text for item in step.all("li")] == [
        "6. waits in level 3 for the first retry of billing: delivered when it was due, after 10 s, joined by UNIQ_KEY",
        "8. failed in billing: billing tried, after 70 ms, joined by UNIQ_KEY",
        "9. dead letter of billing: billing gave up after 2 tries, after 180 ms, joined by UNIQ_KEY",
    ]
    assert [link.attributes["href"] for link in step.all("a")] == ["#step-6", "#step-8", "#step-9"]


def test_consumptions_missing_ends_and_outcomes_are_described() -> None:
    root = shown(order_story())
    assert pairs(root.by_id("step-5")) == {
        "time (UTC)": "2026-11-20 14:00:00.480", "kind": "consumption", "group": "billing",
        "client": "10.0.0.9:40112", "try": "1", "took": "36 ms", "result": "exception",
    }  # fmt: skip
    assert pairs(root.by_id("step-13"))["why"].startswith("not delivered so far: due")
    assert "Now: consumed by audit at the first try" in root.by_id("step-4").text
    assert "the lake has no body of this one" in root.by_id("step-12").text


def test_text_is_shown_as_text_and_other_bytes_as_hex() -> None:
    assert body_text("Grüße\r\n<b>".encode()) == ("Grüße\n<b>", "")
    assert body_text(b"") == ("", "The body is empty.")
    text, note = body_text(b"\x00\xff" * 200)
    assert text.splitlines()[0] == " ".join(["00 ff"] * 8)
    assert len(text.splitlines()) == 16
    assert note == "400 bytes that are not text; the first 256 are shown."


def test_a_long_body_is_cut_with_a_note() -> None:
    text, note = body_text(b"x" * 1_000_000)
    assert len(text) == MAX_BODY
    assert note == "The first 4,000 characters of 976.6 KiB."


@pytest.mark.parametrize(
    "text", ['{"a":[1,{"b":"x,y{\\"}"}],"c":{},"d":[]}', "[" * 3_000, "}" * 3_000, "[1,2", '{"a":"', "[" + "9" * 3_000]
)
def test_indenting_changes_only_white_space(text: str) -> None:
    found = indent_json(text)
    assert "".join(found.split()) == "".join(text.split())
    assert len(found) < 90 * len(text)


def test_bodies_beyond_the_limit_of_the_page_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 4_000)
    steps = [record_step(number, number, "orders", "sent") for number in range(10)]
    root = shown(Story("key k", None, steps, [], []))
    bodies = [bool(root.by_id(f"step-{number}").all("pre")) for number in range(1, 11)]
    assert bodies == sorted(bodies, reverse=True)
    assert 0 < sum(bodies) < 10
    assert "left out, because the page would" in root.by_id("step-10").text


def test_a_record_with_many_or_long_properties_is_bounded() -> None:
    step = record_step(1, 0, "orders", "sent")
    assert step.record is not None
    record = replace(step.record, properties={f"p{number}": "v" * 100_000 for number in range(5_000)})
    page = details_of(replace(step, record=record))
    assert len(page) < 100_000
    assert "and 4,920 more" in page
    assert "… (100,000 characters)" in page


def details_of(step: object) -> str:
    story = Story("key k", None, [step], [], [])  # type: ignore[list-item]
    return step_details_html(story, choose_picture_rows(story))
