"""Format of JMQ: everything that differs from the engine.

format    all of this as one object    rules    a record in plain Python (standard library only)
rows      a message as a row           reading  the same, compiled, of `connectors.formats.jmq.kernel`
queues    topics by the queue files    decoder  columns that a journal has otherwise, or not at all
facts     what queues must say         queue_facts, queue_files, queue_writer  queues: compared, read, written
small_files  checkpoint and offsets    samples  a small journal, for set-up
"""
