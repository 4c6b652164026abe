"""Restores a store that a broker can start from: metadata from the table `messages` of a lake, bodies from its packs.

The run
    plan      options of a run, kept in the output folder so that an interrupted run can be resumed
    log_rows  queries to the lake: the range of the log, its records, the ends of its queues
    run       entry point: `restore_store`

The log, segment by segment
    segment_restore  reads the rows of a segment, writes its file, and fills the ranges without a record
    record_writer    writes each record at its offset, from rows in any order
    body_copying     copies bodies into the segment, pack by pack

All other files
    config_files  consumer offsets, finished delays and groups; the rest is rebuilt from the log (pipelines.rebuild)

A restored record is byte for byte what the broker stored. The table has every field of it except the text of the
properties. That text follows from the map of properties, and the size of the record shows whether it does. If it does
not (a key was repeated, or an entry had no value), the restore writes a text with the same properties and pads it with
an entry that decoders skip: see `record_writer`.
"""
