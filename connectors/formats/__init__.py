"""The formats of the stores of message brokers, as objects that `connectors.reading` gets handed in.

rocketmq       RocketMQ's CommitLog, and BoltMQ's
jmq            JMQ's journal
registry       lists them
index_entries  the entries of a store's own queues and IndexFiles as columns

The interface that a format implements is in `connectors.log_format`. What all formats share (segments, windows, splits,
plans, compiled loops) is in `connectors.reading`.

To add a format: a package beside these that exports one `FORMAT`, and a line in `registry`.
"""
