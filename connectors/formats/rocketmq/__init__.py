"""Format of RocketMQ, including BoltMQ's dialect: everything that differs from other formats.

format           all of this as one object
rules, message_row  a record in plain Python               reading       the compiled loops of `kernel`; decoder
queue_formats    queues, for reads of topics              indexes       ConsumeQueues and IndexFiles, entry by entry
consume_queues   queues, for many entries at once         batch_queues  the same of BatchConsumeQueues
queue_writer     queues, rewritten (queue_rules)       key_index     keys, looked up in IndexFiles
dialects         detection of a store's dialect: RocketMQ's or BoltMQ's
facts            the index data of records                small_files   checkpoint, offsets
irregular_records  index data of records that the compiled code does not handle
topic_configs    topics.json and subscriptionGroup.json   topic_kinds   topics that have queues of batches
samples          a small log, for set-up
"""
