"""Readers of a log in any format as rows; the `Format` supplies the differences.

Selection of records
    options   the user's options                   stores     stores that match a path
    filters   predicates that drop records early   plan       the end of the log; cuts: positions to divide it at
    read_plan segments by time and offset, topics and keys by the broker's indexes (queue_index, listed)
    entry_plan entries of queues instead of records, for callers that do not need the records

Reading
    files     bytes of segments                    windows    mapped (mapping) or read, in order
    store_files  queues and indexes by their paths: on a disk (indexed_files) or in a copy (shipped_files)
    kernel/   compiled: records and columns        walk       windows through the kernel
    format_kernel  a format's compiled loops, for the engine
    decoder   the kernel's buffers for a split     decoded    Arrow arrays around them; distinct: values that repeat
    batches   a split as Arrow batches (rows)      refused    the handling of damage
    records   the same in plain Python, to cross-check
"""
