"""Tests of the text about dead letters."""

from __future__ import annotations

import datetime

from commitlake.jobs.dlq.report import cause_text, dead_letter_sentences
from commitlake.pipelines.dead_letters.causes import Cause, DeadLetters

AT = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def cause(group: str, messages: int, **more: object) -> Cause:
    named = {"topic": None, "tag": None, "attempts": 1, "reason": None, **more}
    return Cause(group=group, messages=messages, first=AT, last=AT, example="0A", **named)  # type: ignore[arg-type]


def test_no_dead_letters_are_described() -> None:
    assert list(dead_letter_sentences(DeadLetters([], 0))) == ["No dead letter is archived."]


def test_the_worst_group_may_have_many_small_causes() -> None:
    letters = DeadLetters([cause("a", 3), cause("b", 2), cause("b", 2, tag="paid")], 9, {"a": 3, "b": 5, "c": 1})
    assert list(dead_letter_sentences(letters)) == [
        "9 dead letters of 3 groups; the worst is b, with 5 (56 %).",
        (
            "The most frequent cause: a gave up messages of an unknown topic without a tag after 1 attempt; 3 "
            "messages, from 2026-11-20 00:00:00 to 2026-11-20 00:00:00 UTC."
        ),
        "The newest of them: commitlake query --id 0A",
        "2 dead letters have rarer causes that are not shown.",
    ]


def test_a_cause_has_every_detail() -> None:
    known = cause("a", 1, topic="orders", tag="paid", attempts=17, reason="Timeout")
    assert cause_text(known) == "a gave up messages of orders with the tag paid after 17 attempts: Timeout"
