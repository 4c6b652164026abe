"""The doctor of a broker's store: what in it is not as it must be, where, why, and what to do about it.

What is said
    classes    every class of finding: severity, cause, cure          findings   findings of a run, bounded in number
    verdict    the verdict on stores in a sentence

What is looked at
    store_view   a store before its log is read: the log's end, what is dispatched, its index files
    queue_files  entries of a queue by number                 index_files  header, slots, entries of an IndexFile
    log_check    a range of the log, each record against its entries: queue_check, index_check
    chains       compiled: the chains of an IndexFile         runs         each queue's numbers over the whole log
    loose        entries that no record of the log claims     small_files  checkpoint, abort, offsets of groups
    admission    a store as it comes                          doctor       all of it, over the tasks of `facts.running`
"""
