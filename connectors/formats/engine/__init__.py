"""Readers of a log in any format as rows; the `Format` supplies the differences.

What to read
    options   what a user can ask for              stores     which stores a path names
    filters   predicates that drop records early   plan       where the log ends; cuts: where it may be divided
    read_plan segments by time and offset, topics and keys by the broker's indexes (queue_index, listed)
    entry_plan entries of queues instead of records, for a caller to which these are enough

How it is read
    files     bytes of segments                    windows    mapped (mapping) or read, one after the other
    kernel/   compiled: records and columns        walk       windows through the kernel
    format_kernel  what a format gives for it: its compiled loops
    decoder   the kernel's buffers for a split     decoded    Arrow arrays around them; distinct: values that repeat
    batches   a split as Arrow batches (rows)      refused    what is not intact
    records   the same in plain Python: a second opinion
"""
