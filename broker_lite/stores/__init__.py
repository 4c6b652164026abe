"""Stores of a broker: what they share, and a package for each layout of files.

engine        what stores of every layout share; it knows none of them
rocketmq      CommitLog, ConsumeQueues, IndexFiles and config files, as RocketMQ and BoltMQ write them
jmq           a journal for all topics, and queues that lead into it; knows nothing of `rocketmq`
jmq_adapter   a store in JMQ's layout behind RocketMQ's protocol
"""
