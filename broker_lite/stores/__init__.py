"""Stores of a broker: shared code, and one package for each file layout.

engine        code for stores of every layout; it depends on none of them
rocketmq      CommitLog, ConsumeQueues, IndexFiles and config files, as RocketMQ and BoltMQ write them
jmq           a journal for all topics, and queues that point into it; does not depend on `rocketmq`
jmq_adapter   a store in JMQ's layout, served over RocketMQ's protocol
"""
