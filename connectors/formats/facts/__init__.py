"""What a broker's indexes must say, taken from its log in one compiled pass; and how such passes are run.

kernel    compiled: tag codes, key hashes, offsets of every record, while it is in the cache
reading   `read_facts`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
records   the columns; each format's own `facts` collects them
entries   `queue_entries`: the queue entries that follow from them, grouped by queue
queue_layouts  `QueueLayout`: what the queues of a format are
names     `can_be_folder`: which topics can have queues at all
"""
