"""The Spark source `journal`: JMQ's journal as rows, by the same machinery as RocketMQ's CommitLog.

What differs from `connectors.formats.engine`, and nothing else
    source    the format's name            rules    what stands where, in plain Python (standard library only)
    rows      a message as a row           reading  the same, compiled, of `connectors.formats.jmq.kernel`
    queues    topics by the queue files    decoder  columns that a journal has otherwise, or not at all
"""
