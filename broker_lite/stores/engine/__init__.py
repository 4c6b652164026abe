"""What stores of every layout share: files of one size, a log of records, queues that lead into it, and their upkeep.

Files and folders:

    mapped_file       a file of a fixed size, read and written through memory
    file_queue        a run of bytes in files of one size
    record_log        records in such files, none across the end of one
    message_log       the log of messages, found at their offsets
    entry_queue       one queue: entries of one size that lead into the log
    queue_table       the queues of a store, a folder for each
    kept_file         a small file that is written as a whole, with a `.bak`
    kept_table        a table in memory that such a file keeps
    checkpoint_file   a small file that is written in place

An open store:

    open_store        from the moment its folder is held until it is given back
    ownership         the files `lock` and `abort`
    log_writer        whether a store takes more; `progress`: how far it has been written
    flushing          putting it on the disk
    recovery          what was found when it was opened
    reading, pulling  how messages of a queue are looked up, and what is answered
    retention         which files are deleted, and when
    topic_names       which topics are accepted
    errors, options   what is raised, and the settings that every store has

A package for each layout (`rocketmq`, `jmq`) adds what its bytes are. This one imports neither.
"""
