"""Registrations of brokers at a name server, read at once."""

from __future__ import annotations

from commitlake.schemas.remoting.registration import RegistrationReader
from commitlake.schemas.remoting.topic_and_group_configs import RegisterBrokerBody, TopicConfigs


def parse_registration(body: bytes | memoryview, *, is_compressed: bool) -> RegisterBrokerBody:
    """Return all topics that a broker registers.

    Raises:
        BodyError: if the body does not have the declared form.
    """
    reader = RegistrationReader(body, compressed=is_compressed)
    topics = dict(topic for topic in reader.read_topics() if topic is not None)
    return RegisterBrokerBody(TopicConfigs(topics, reader.data_version), reader.filter_servers)
