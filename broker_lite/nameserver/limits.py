"""Limits on registrations with a name server, for each broker and in total. RocketMQ has none."""

from __future__ import annotations

from commitlake.schemas.remoting.configs import TopicConfig
from commitlake.schemas.remoting.errors import BodyError, HeaderError
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerRequest

MAX_BROKERS = 1_000
"""Masters and slaves together."""
MAX_TOPICS = 200_000
"""Topics of one broker; more would not fit in a compressed body."""
MAX_ROUTES = 500_000
"""Topics of all brokers, counted once for each broker that has them; they take about 150 MB."""
MAX_QUEUES = 65_536
"""Queues of a topic; clients create an object for each of them."""
MAX_FILTER_SERVERS = 64
MAX_NAME_LENGTH = 255
"""Maximum length of names of topics, brokers and clusters; RocketMQ's topics have up to 127 characters plus prefix."""
MAX_ADDRESS_LENGTH = 261
"""A host name of 255 characters and a port."""
MAX_TIMEOUT_MS = 600_000
"""Longest heartbeat timeout that a broker may ask for."""


def check_names(header: RegisterBrokerRequest) -> None:
    """Check the names and addresses of a broker.

    Raises:
        HeaderError: if a name or address is too long, or the id is negative.
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
    """Check the number of topics of a broker.

    Raises:
        BodyError: if there are too many topics.
    """
    if count > MAX_TOPICS:
        raise BodyError(f"registration: expected at most {MAX_TOPICS} topics, found {count}")


def check_filter_servers(servers: tuple[str, ...]) -> None:
    """Check the number of filter servers of a broker.

    Raises:
        BodyError: if there are too many filter servers.
    """
    if len(servers) > MAX_FILTER_SERVERS:
        raise BodyError(f"registration: expected at most {MAX_FILTER_SERVERS} filter servers, found {len(servers)}")


def check_topic(name: str, topic: TopicConfig) -> None:
    """Check the name and the queues of a topic.

    Raises:
        BodyError: if its name is empty or too long, or it has too many queues.
    """
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise BodyError(f"topic {name[:80]!r}: expected 1 to {MAX_NAME_LENGTH} characters, found {len(name)}")
    for count in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= count <= MAX_QUEUES:
            raise BodyError(f"topic {name[:80]!r}: expected 0 to {MAX_QUEUES} queues, found {count}")
