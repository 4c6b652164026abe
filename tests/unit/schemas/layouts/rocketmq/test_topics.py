"""Tests of the topic that a message was sent to, and of op records of transactions."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq.topics import origin_topic, parse_op_offsets
from tests.support.origins import ORIGINS


@pytest.mark.parametrize(("topic", "properties", "expected"), ORIGINS)
def test_the_original_topic_follows_from_stored_topic_and_properties(
    topic: str, properties: dict[str, str], expected: str
) -> None:
    assert origin_topic(topic, properties) == expected


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"3", [3]),  # 4.9
        (b"3,", [3]),
        (b"0,1,3,", [0, 1, 3]),  # 5.1 and later
        (b"", []),
        (b"-1,x,\xff,7", [7]),
        (b"9" * 5000, []),
    ],
)
def test_an_op_record_names_the_halves_that_are_finished(body: bytes, offsets: list[int]) -> None:
    assert parse_op_offsets(body) == offsets
