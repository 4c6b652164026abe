"""Offsets of a consumer group: those it had at a time, those it needs to consume from a time, and how to set them.

group_offsets         offset of a group in one queue
offset_sources        stores of a lake, or stores that are not archived
past_offsets          offsets that a group had, from the snapshots of `consumer_offsets`
live_queues           the same queues at live brokers
plan                  all of this for each offset, and the lag of the group after setting it
broker_offset_update  connected clients, setting offsets, reading them back, and mqadmin's commands for the same
"""
