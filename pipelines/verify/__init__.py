"""Verification of a broker's store: what is wrong, where, why, and what to do about it.

Results
    finding_classes  every class of finding: severity, cause, action
    findings         findings of a run, bounded in number, and the verdict on them

Checks
    store_precheck      checks before the log is read
    store_view          a store before its log is read: the log's end, what is dispatched, its index files
    log_check           compares the records of a range of the log with their entries: queue_check, index_check
    queue_files         entries of a queue by number; batch_queues: the same for BatchConsumeQueues
    queue_ends          files, and entries without a record
    index_files         header, slots, entries of an IndexFile; index_chains: their chains, compiled
    store_verification  runs all checks as tasks, then compares checkpoint, abort file and offsets of groups
"""
