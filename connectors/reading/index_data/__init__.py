"""The data from which a broker's indexes are built, read from its log in one compiled pass.

reading      `read_index_data`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
entries      `group_entries_by_queue`: the queue entries derived from them, grouped by queue
grouping     entries by their queue
topic_kinds  which topics have queues at all, and which have queues of batches
"""
