"""Masked stories: no value that a rule changes is left anywhere, and bodies that cannot be masked are not shown."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from commitlake.pipelines.lineage.history_masking import HIDDEN, mask_story
from commitlake.pipelines.lineage.message_history import Story
from commitlake.pipelines.masking.masks import parse_mask
from tests.support.stories import order_story

KEY = b"a secret"


def masked(story: Story, *rules: str) -> Story:
    return mask_story(story, [parse_mask(rule) for rule in rules], KEY)


def test_without_rules_the_story_is_the_same() -> None:
    story = order_story()
    assert masked(story) is story


@pytest.mark.parametrize("rule", ["keys=hash", "keys=null", "keys=text:someone", "property.KEYS=hash"])
def test_a_masked_key_is_not_in_the_story(rule: str) -> None:
    story = order_story()
    told = replace(
        story,
        steps=[replace(step, title=f"{step.title} (order-4711)", text="for order-4711.") for step in story.steps],
        edges=[replace(edge, text="by order-4711") for edge in story.edges],
        cautions=["order-4711, and more"],
    )
    found = masked(told, rule)
    assert b"order-4711" not in pickle.dumps(found)
    assert found.asked.startswith("key ")
    assert [step.id for step in found.steps] == [step.id for step in story.steps]


def test_hashes_of_equal_values_are_equal() -> None:
    found = masked(order_story(), "keys=hash")
    assert len({record.keys for record in found.records}) == 1
    assert found.asked == f"key {found.records[0].keys[0]}"


def test_a_property_and_its_value_elsewhere_are_masked() -> None:
    story = order_story()
    told = replace(story, outcomes=[replace(story.outcomes[0], text="called 555-0199 back")])
    found = masked(told, "property.phone=last:4", "property.UNIQ_KEY=null")
    assert {record.properties["phone"] for record in found.records} == {"****0199"}
    assert {record.unique_key for record in found.records} == {HIDDEN}
    assert found.outcomes[0].text == "called ****0199 back"
    assert b"7F00A1" not in pickle.dumps(found)


def test_a_part_of_a_word_is_not_replaced() -> None:
    found = masked(replace(order_story(), cautions=["created at, recreated, created."]), "tags=text:T")
    assert found.cautions == ["T at, recreated, T."]


def test_a_body_is_masked_and_one_that_cannot_be_is_not_shown() -> None:
    found = masked(order_story(), "body.customer.email=null", "body.customer.name=last:1")
    bodies = {record.topic: record for record in found.records}
    assert bodies["orders"].body == (
        b'{"order":4711,"customer":{"name":"**a","email":null},"lines":[{"sku":"A-1","count":2}]}'
    )
    op = bodies["RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    assert op.body is None
    assert op.body_problem is not None
    assert op.body_problem.startswith("not shown, because it cannot be masked: body: expected JSON")
    assert op.keys == ("order-4711",)


def test_a_long_key_is_masked_where_the_question_cuts_it() -> None:
    story = order_story()
    key = "k" * 300
    steps = [
        replace(step, record=replace(step.record, keys=(key,))) if step.record is not None else step
        for step in story.steps
    ]
    found = masked(replace(story, asked=f"key {key[:200]}…", steps=steps), "keys=null")
    assert found.asked == f"key {HIDDEN}…"
    assert b"kkkk" not in pickle.dumps(found)
