"""What a broker's indexes must say, taken from its log in one compiled pass; and how such passes are run.

kernel    compiled: tag codes, key hashes, offsets of every record, while it is in the cache
reading   `read_facts`: a range of the log as columns, chunk by chunk, with the ranges that hold no record
records   the columns, and what collects them from RocketMQ's log     journal   from JMQ's
odd       the same in Python, for records that the kernel leaves aside (delay_levels)
entries   `queue_entries`: the queue entries that follow from them, grouped by queue
queue_layouts  what the queues of each layout are: consume_queues RocketMQ's, jmq_queues JMQ's
names     `can_be_folder`: which topics can have queues at all
running   `run_tasks`: a function over many tasks, in this process, in several, or on Spark
"""
