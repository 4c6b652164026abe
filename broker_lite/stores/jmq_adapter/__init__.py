"""Store in JMQ's layout, served over RocketMQ's protocol."""

from commitlake.broker_lite.stores.jmq_adapter.store import JmqStore

__all__ = ["JmqStore"]
