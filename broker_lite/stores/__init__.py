"""Stores of a broker, one package for each layout of files.

rocketmq      CommitLog, ConsumeQueues, IndexFiles and config files, as RocketMQ and BoltMQ write them
jmq           a journal for all topics, and queues that lead into it
jmq_adapter   a store in JMQ's layout behind RocketMQ's protocol
"""
