"""A store's queues, IndexFiles, checkpoint and topics, made again from its log as the broker makes them.

JMQ's stores are made by the same two passes; they have queue files and a checkpoint, and nothing else of these.

How
    settings   sizes and rules that the log does not tell; found in what is left of the store, or given
    plan       a run: which log, up to where, how it is divided; kept in the work folder, so that a run can go on
    run        all of it: `rebuild_store`

First pass, a task for each range of the log
    collect    the entries of every queue and the keys of every record, into a part file (parts)

Second pass, tasks for groups of queues and for index files
    queues     the files of queues, by the broker's rules (the format's `queue_writer`); queue_folder: their files
    index      IndexFiles (chaining: compiled)

At the end
    checkpoint how far all is on the disk            topics     topics.json: what it says, what the log says
    replace    the new files in the place of the old ones, which are kept beside
"""
