"""Code that stores of every layout share: files of one size, a log of records, queues of entries, and maintenance.

Files and folders:

    mapped_file                 a file of a fixed size, read and written through memory
    file_queue                  a sequence of bytes in files of one size
    record_log                  records and messages in such files; no record crosses the end of a file
    entry_queue                 one queue: entries of one size that point into the log
    queue_table                 the queues of a store, one folder each
    table_and_checkpoint_files  tables in memory that are saved in small files, and checkpoints

An open store:

    open_store    a store while its folder is locked
    store_lock    the files `lock` and `abort`
    log_writer    the writer, its progress, the result of recovery, and whether the store accepts writes
    flushing      flushes to disk
    queue_reader  queries for messages of a queue, pulls, and their results
    retention     deletion of old files
    topic_names   valid topic names
    options       the settings that every store has; errors are in `broker_lite.errors`

A package for each layout (`rocketmq`, `jmq`) adds its binary format. This package imports neither.
"""
