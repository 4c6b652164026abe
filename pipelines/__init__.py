"""Computations of the project: one package for each capability.

    archive        archive runs, from new messages in the stores to updated tables
    snapshot       snapshots of consumer offsets and subscriptions
    quality        profiles of a run, and checks of them by the expectation suites
    evidence       signed documents about archive runs, audits and erasures
    message_keys   the table `message_keys`, which follows `messages`
    consumptions   the table `consumptions`: deliveries recorded by JMQ stores
    edges          the table `edges`, which follows `messages` and `consumptions`
    topic_minutes  the table `topic_minutes`: messages counted by minute
    query          look-ups in the lake
    grep           search of message bodies by a regular expression
    lineage        history of the messages of a key, a message id or an offset
    tps            messages per second in any time range
    lag, offsets   lag of consumer groups; their past offsets, and setting of offsets
    lag_minutes    the table `lag_minutes`: lag of consumer groups by minute
    dead_letters   dead letters by group, topic and cause
    replay         sends archived messages again
    masking        removal of personal data from messages
    erasure        permanent erasure of messages from a lake
    audit          comparison of a lake with stores, packs, HBase and the tables that follow `messages`
    archive_health age and gaps of an archive
    maintenance    compaction, vacuum, expiry and repair of a lake
    retention      the segments that a broker is going to delete
    ship           copies of a broker's store in an object store or a folder
    verify         problems in the files of a store
    rebuild        queues and indexes of a store, rebuilt from its log
    salvage        a clean log, recovered from a damaged one
    restore        a store that a broker can start from, restored from a lake

An import contract in `pyproject.toml` states the order among these packages.
"""
