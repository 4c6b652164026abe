"""Computations of the project: one package for each capability.

    transforms     DataFrame to DataFrame, without session, path, clock or action
    transforms     functions from DataFrame to DataFrame, without session, path, clock or action
    quality        profiles of a run, and the suites' judgement on them
    message_keys   the table `message_keys`, which follows `messages`
    edges          the table `edges`, which follows `messages`
    topic_minutes  the table `topic_minutes`: messages counted by minute
    tps            messages per second of any past time
    maintenance    compaction, vacuum, expiry and repair of a lake
    retention      which segments a broker is going to delete
    retention      the segments that a broker is going to delete
    verify         problems in the files of a store
    rebuild        queues and indexes of a store, rebuilt from its log
    salvage        a clean log, recovered from a damaged one
    restore        a store that a broker can start from, restored from a lake
An import contract in `pyproject.toml` states the order among these packages.
"""
