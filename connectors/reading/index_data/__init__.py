"""The data from which a broker's indexes are built, read from its log in one compiled pass.

log_range_reader  `read_index_data`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
queue_entries     `group_entries_by_queue`: the queue entries derived from them, grouped by queue
topic_kinds       which topics have queues at all, and which have queues of batches
"""
