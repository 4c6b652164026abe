"""Format of JMQ: everything that differs from other formats.

format                                  all of this as one object
rules                                   a record in plain Python (standard library only)
message_row                             a message as a row
compiled_loops                          the compiled loops of `connectors.formats.jmq.kernel`
queue_format                            topics by the queue files
decoder                                 columns that a journal stores in another form, or lacks
index_data                              data of the queue entries
queue_facts, queue_files, queue_writer  queues: compared, read, written
checkpoint_and_config                   checkpoint and offsets
"""
