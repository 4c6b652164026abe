"""Readers of the stores of message brokers, without Spark.

format     `Format`: one object for each log format, with all that differs     registry   lists them
engine     what all formats share: segments, windows, splits, plans, and compiled loops
facts      what a store's indexes must say, taken from its log
index_entries  the entries of a store's own queues and IndexFiles as columns
rocketmq   RocketMQ's CommitLog, and BoltMQ's
jmq        JMQ's journal

To add a format: a package beside these that exports one `Format`, and a line in `registry`.
small_files, queue_writing and queue_walking are what a format and verify, rebuild or dump have in common.
"""
