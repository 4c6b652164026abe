"""A store in JMQ's layout behind RocketMQ's protocol."""

from commitlake.broker_lite.stores.jmq_adapter.store import JmqStore

__all__ = ["JmqStore"]
