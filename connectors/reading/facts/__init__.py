"""The data from which a broker's indexes are built, read from its log in one compiled pass.

reading   `read_facts`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
records   the columns; each format's `facts` module collects them, with tag codes and key hashes, in a compiled loop
entries   `queue_entries`: the queue entries derived from them, grouped by queue
queue_layouts  `QueueLayout`: the queues of a format
names     `can_be_folder`: which topics can have queues at all
topic_kinds    which topics have queues of batches             grouping  entries by their queue
"""
