"""Offsets of a consumer group: those it had at a time, those it needs to consume from a time, and how to set them.

group_offsets  offset of a group in one queue
sources        stores of a lake, or stores that are not archived
lake_queues    ends of queues of a lake's store, and the first message since a time
store_queues   the same for a store's own files
past_offsets   offsets that a group had, from the snapshots of `consumer_offsets`
needed         offsets that a group needs, from the messages
live_queues    the same queues at live brokers
plan           all of this for each offset, and the lag of the group after setting it
setting        connected clients, setting offsets, and reading them back
mqadmin        commands of RocketMQ's command line that set the same offsets
"""
