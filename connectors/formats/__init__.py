"""Reads the stores of message brokers, without Spark.

engine     what all formats share: segments, windows, splits, plans, and compiled loops
facts      what a store's indexes must say, taken from its log
rocketmq   RocketMQ's CommitLog, and BoltMQ's
jmq        JMQ's journal
"""
