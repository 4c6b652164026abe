"""The topic that a message was sent to, from its stored topic and properties."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq.origins import origin_topic
from tests.support.origins import ORIGINS


@pytest.mark.parametrize(("topic", "properties", "expected"), ORIGINS)
def test_a_record_tells_the_topic_that_its_message_was_sent_to(
    topic: str, properties: dict[str, str], expected: str
) -> None:
    assert origin_topic(topic, properties) == expected
