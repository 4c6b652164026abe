"""A store in JMQ's layout behind RocketMQ's protocol."""

from broker_lite.jmq.store import JmqStore

__all__ = ["JmqStore"]
