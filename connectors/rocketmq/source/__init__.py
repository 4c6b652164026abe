"""The Spark source `rocketmq`: messages of live brokers as rows of `messages`, as a batch or as a stream.

options      what a user can ask for           positions       where a read begins and ends in each queue
ranges       queues as partitions              rows            answers of brokers as Arrow batches
batch        the batch's side of Spark         stream          the stream's side of Spark
stream_plan  what a micro-batch takes          stream_offsets  what a stream keeps in its checkpoint
"""
