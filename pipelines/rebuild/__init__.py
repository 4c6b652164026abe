"""Rebuild of a store's queues, IndexFiles, checkpoint and topics from its log, byte for byte as the broker makes them.

JMQ stores go through the same two passes; of these files they have queue files and a checkpoint.

Set-up
    settings  sizes and rules that are not in the log: read from the remaining files, or given
    plan      a run: log, end, division into ranges; kept in the work folder, so that a run can be resumed
    run       the entry point: `rebuild_store`

First pass, a task for each range of the log
    entry_collection  the entries of every queue and the keys of every record, into a part file (part_files)

Second pass, tasks for groups of queues and for index files
    queue_building  queue files, by the broker's rules (the format's `queue_writer`)
    index_building  IndexFiles (index_entries: compiled)

At the end
    checkpoint_and_topics  the checkpoint, and topics.json from the old one and from the log
    store_replacement      replaces a store's files by the new ones, and keeps the old ones beside them
"""
