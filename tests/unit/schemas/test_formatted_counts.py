"""Counts with their nouns."""

from __future__ import annotations

import pytest

from commitlake.schemas.formatted_counts import format_count


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues"), (1203, "1,203 queues"), (1.0, "1 queue")]
)
def test_the_noun_follows_the_count(count: float, text: str) -> None:
    assert format_count(count, "queue") == text


@pytest.mark.parametrize(("count", "text"), [(1, "1 body is left"), (2, "2 bodies are left")])
def test_a_verb_follows_its_noun(count: int, text: str) -> None:
    assert f"{format_count(count, 'body is', 'bodies are')} left" == text
