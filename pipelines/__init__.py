"""What is computed: a package for each capability.

    transforms     DataFrame to DataFrame, without session, path, clock or action
    archive        an archive run, from what is new in the stores to the tables
    quality        profiles of a run, and the suites' judgement on them
    message_keys   the table `message_keys`, which follows `messages`
    edges          the table `edges`, which follows `messages`
    topic_minutes  the table `topic_minutes`: messages counted by minute
    tps            messages per second of any past time
    maintenance    compaction, vacuum, expiry and repair of a lake
    retention      which segments a broker is going to delete
    verify         what in a store is not as it must be
    rebuild        a store's queues and indexes, made again from its log
    salvage        a clean log from a damaged one
    restore        a store that a broker starts from, out of a lake

An import contract in `pyproject.toml` states the order among these packages.
"""
