"""Offsets of a consumer group: those it had at a time, those it needs to consume from a time, and how to set them.

rows           what is known of one queue
sources        the lake's stores, or stores of which nothing is archived
lake_queues    where the queues of a lake's store begin and end, and the first message since a time
store_queues   the same for a store's own files
had            the offsets that a group had, from the snapshots of `consumer_offsets`
needed         the offsets that a group needs, from the messages
live_queues    what a live broker says of the same queues
resulting_lag  how far behind the group is once the offsets are set
setting        who is connected, setting offsets, and reading them back
mqadmin        commands of RocketMQ's command line that set the same offsets
"""
