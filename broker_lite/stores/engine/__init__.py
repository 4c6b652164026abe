"""Code that stores of every layout share: files of one size, a log of records, queues of entries, and maintenance.

Files and folders:

    mapped_file       a file of a fixed size, read and written through memory
    file_queue        a sequence of bytes in files of one size
    record_log        records in such files; no record crosses the end of a file
    message_log       a log of messages, which are found by offset
    entry_queue       one queue: entries of one size that point into the log
    queue_table       the queues of a store, one folder each
    saved_table       a table in memory that is saved in one small file, with a `.bak`
    checkpoint_file   a small file that is written in place

An open store:

    open_store        a store while its folder is locked
    ownership         the files `lock` and `abort`
    log_writer        the writer, and whether the store accepts writes; `progress`: end of the written log
    flushing          flushes to disk
    recovery          the result of recovery at the opening
    reading, pulling  queries for messages of a queue, and their results
    retention         deletion of old files
    topic_names       valid topic names
    errors, options   errors, and the settings that every store has

A package for each layout (`rocketmq`, `jmq`) adds its binary format. This package imports neither.
"""
