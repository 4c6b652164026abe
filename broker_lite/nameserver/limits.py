"""Limits of a registration: what one broker, or all of them, may have a name server keep. RocketMQ has none."""

from __future__ import annotations

from commitlake.schemas.remoting.configs import TopicConfig
from commitlake.schemas.remoting.errors import BodyError, HeaderError
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerRequest

MAX_BROKERS = 1_000
"""Masters and slaves together."""
MAX_TOPICS = 200_000
"""Topics of one broker: as many as a compressed body has room for."""
MAX_ROUTES = 500_000
"""Topics of all brokers, each counted for each broker that has it; some 150 MB."""
MAX_QUEUES = 65_536
"""Queues of a topic: clients make an object for each of them."""
MAX_FILTER_SERVERS = 64
MAX_NAME_LENGTH = 255
"""Names of topics, brokers and clusters: RocketMQ's topics have at most 127 characters, retry topics some more."""
MAX_ADDRESS_LENGTH = 261
"""A host name of 255 characters and a port."""
MAX_TIMEOUT_MS = 600_000
"""The longest time that a broker may be silent, whatever it asks for."""


def check_names(header: RegisterBrokerRequest) -> None:
    """Make sure that a broker's names and addresses are of a size that real ones have.

    Raises:
        HeaderError: if one of them is too long, or the id is negative.
    """
    for what, text, limit in (
        ("brokerName", header.broker_name, MAX_NAME_LENGTH),
        ("clusterName", header.cluster_name, MAX_NAME_LENGTH),
        ("brokerAddr", header.broker_addr, MAX_ADDRESS_LENGTH),
        ("haServerAddr", header.ha_server_addr, MAX_ADDRESS_LENGTH),
    ):
        if len(text) > limit:
            raise HeaderError(f"{what}: expected at most {limit} characters, found {len(text)}")
    if header.broker_id < 0:
        raise HeaderError(f"brokerId: expected 0 or more, found {header.broker_id}")


def check_topic_count(count: int) -> None:
    """Make sure that a broker has no more topics than it may.

    Raises:
        BodyError: if it has.
    """
    if count > MAX_TOPICS:
        raise BodyError(f"registration: expected at most {MAX_TOPICS} topics, found {count}")


def check_filter_servers(servers: tuple[str, ...]) -> None:
    """Make sure that a broker has no more filter servers than it may.

    Raises:
        BodyError: if it has.
    """
    if len(servers) > MAX_FILTER_SERVERS:
        raise BodyError(f"registration: expected at most {MAX_FILTER_SERVERS} filter servers, found {len(servers)}")


def check_topic(name: str, topic: TopicConfig) -> None:
    """Make sure that a topic is a possible one.

    Raises:
        BodyError: if its name is empty or too long, or it has too many queues.
    """
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise BodyError(f"topic {name[:80]!r}: expected 1 to {MAX_NAME_LENGTH} characters, found {len(name)}")
    for count in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= count <= MAX_QUEUES:
            raise BodyError(f"topic {name[:80]!r}: expected 0 to {MAX_QUEUES} queues, found {count}")
