"""The Spark source `rocketmq`: messages of live brokers as rows of `messages`, as a batch or as a stream.

options      options of a read                 positions       start and end of a read in each queue
ranges       queues as partitions              range_reader    answers of brokers as Arrow batches
batch        Spark's interface of a batch      stream          Spark's interface of a stream
stream_plan  the range of a micro-batch        stream_offsets  a stream's position in its checkpoint
"""
