"""What a broker's indexes must say, taken from its log in one compiled pass; and how such passes are run.

kernel    compiled: tag codes, key hashes, offsets of every record, while it is in the cache
records   `read_facts`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
odd       the same in Python, for records that the kernel leaves aside (delay_levels)
entries   `queue_entries`: the ConsumeQueue entries that follow from them, grouped by queue
running   `run_tasks`: a function over many tasks, in this process, in several, or on Spark
"""
