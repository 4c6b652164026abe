"""Tests of the request with which a broker registers."""

from __future__ import annotations

import pytest

from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.server.registration import registration_command
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, TopicConfig, TopicConfigs
from tests.support.registrations import parse_registration


@pytest.mark.parametrize(("topic_count", "is_compressed"), [(2, False), (20, True)])
def test_a_registration_near_the_size_limit_of_a_frame_is_compressed(
    monkeypatch: pytest.MonkeyPatch, topic_count: int, is_compressed: bool
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.server.registration.PLAIN_BODY_BYTES", 1000)
    names = [f"topic-{number}" for number in range(topic_count)]
    topics = TopicConfigs({name: TopicConfig(name, attributes={}) for name in names}, DataVersion(1, 1))
    request = registration_command(BrokerOptions(), topics)
    assert request.ext_fields["compressed"] == str(is_compressed).lower()
    assert len(request.body) < 1000
    found = parse_registration(request.body, is_compressed=is_compressed).topic_config_serialize_wrapper
    assert found.data_version == topics.data_version
    # 4.9's name server reads no compressed topic that has attributes.
    attributes: dict[str, str] | None = None if is_compressed else {}
    assert found.topic_config_table == {name: TopicConfig(name, attributes=attributes) for name in names}
