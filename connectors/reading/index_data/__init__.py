"""The data from which a broker's indexes are built, read from its log in one compiled pass.

reading      `read_facts`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
entries      `queue_entries`: the queue entries derived from them, grouped by queue
grouping     entries by their queue
topic_kinds  which topics have queues at all, and which have queues of batches
"""
