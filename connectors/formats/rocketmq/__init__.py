"""Format of RocketMQ, including BoltMQ's dialect: everything that differs from other formats.

format           all of this as one object
record_rules            a record in plain Python                 reading       the compiled loops of `kernel`; decoder
consume_queues   queues, for many entries at once         batch_queues  the same of BatchConsumeQueues
queue_writer     queues, rewritten (queue_rules)          indexes       ConsumeQueues and IndexFiles, entry by entry
dialects         detection of a store's dialect           key_index     keys, looked up in IndexFiles
index_data            the index data of records                small_files   checkpoint, offsets
topic_configs    topics.json and subscriptionGroup.json   topic_kinds   topics with queues of batches, light queues
"""
