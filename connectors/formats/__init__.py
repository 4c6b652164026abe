"""Reads the stores of message brokers, without Spark.

format     `Format`: one object for each log format, with all that differs     registry   lists them
engine     what all formats share: segments, windows, splits, plans, and compiled loops
facts      what a store's indexes must say, taken from its log
rocketmq   RocketMQ's CommitLog, and BoltMQ's
jmq        JMQ's journal

To add a format: a package beside these that exports one `Format`, and a line in `registry`.
small_files and queue_writing are the types in which a format and verify or rebuild speak to each other.
"""
