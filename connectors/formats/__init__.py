"""Readers of the stores of message brokers, without Spark.

format     `Format`: one object for each log format, with its differences   registry   lists them
facts      the data of a store's indexes, derived from its log
index_entries  the entries of a store's own queues and IndexFiles as columns
rocketmq   RocketMQ's CommitLog, and BoltMQ's
jmq        JMQ's journal

What all formats share (segments, windows, splits, plans, compiled loops) is in `connectors.reading`.

To add a format: a package beside these that exports one `Format`, and a line in `registry`.
Formats share small_files, queue_writing and queue_walking with verify, rebuild and dump.
"""
