"""Tests of the topic that a message was sent to, derived from its stored topic and properties."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq.origins import origin_topic
from tests.support.origins import ORIGINS


@pytest.mark.parametrize(("topic", "properties", "expected"), ORIGINS)
def test_the_original_topic_follows_from_stored_topic_and_properties(
    topic: str, properties: dict[str, str], expected: str
) -> None:
    assert origin_topic(topic, properties) == expected
