"""RocketMQ's Java consumers for a topic with many messages."""

from __future__ import annotations

from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import Row, run_java

TOPIC = "EveryVolume"
VOLUME = 1500


def consume(
    broker: BrokerLite, version: str, way: str, expression: str = "*", consumers: int = 1, messages: int = VOLUME
) -> list[Row]:
    """Return the messages that consumers receive."""
    arguments = [broker.name_server_address, way, TOPIC, f"by-{way}", expression, str(consumers), str(messages), "150"]
    return run_java(version, "Consumers", arguments)


def keys(rows: list[Row]) -> set[str]:
    """Return the messages' unique keys."""
    return {row["unique_key"] for row in rows}
