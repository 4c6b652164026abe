"""RocketMQ's format: what differs from the engine, and nothing else. BoltMQ's dialect is in here, too.

rules            a record in plain Python                 reading       the same, compiled, of `kernel`
queue_formats    queues, for reads of topics              indexes       ConsumeQueues and IndexFiles, entry by entry
consume_queues   queues, for many entries at once         batch_queues  the same of BatchConsumeQueues
dialects         whether a store is RocketMQ's or BoltMQ's
odd              records that the compiled code leaves to Python
topic_configs    topics.json and subscriptionGroup.json
"""
