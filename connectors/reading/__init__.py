"""Readers of a log in any format as rows; the `Format` supplies the differences, and is handed in.

Selection of records
    options       the user's options                  stores     stores that match a path
    read_request  predicates that drop records early  snapshots  the end of the log, and its division into splits
    planning      segments by time (time_bounds) and offset; topics and keys by the broker's indexes (index_lookups)

Reading
    files/              bytes of segments, queues and indexes, on disks and elsewhere
    kernel/             compiled loops: records and columns
    segment_walk        windows through the kernel
    index_data/         columns for a broker's indexes
    listed_records      records that an index names
    decoding/           the kernel's buffers as Arrow arrays
    batches             a split as Arrow batches; damage: what bad ranges become
    store_identity_check  checks that a store is still the same one
    uncompiled_records  the same in plain Python, to cross-check
"""
