"""Compiled part of the reader: converts a window of log bytes to Arrow buffers, without Python objects per message.

    layouts           functions that differ between layouts, chosen when a loop is compiled
    compile_options   compilation of functions; function_cache: the folder of the results
    memory_access     unaligned loads and stores, tests of 64 bytes at once
    crc               CRC-32, by carry-less multiply (crc_folding) if the processor has it
    record_walk       loop from record to record; finds the positions of each record's parts
    decode            hop and columns in one pass, while a record is in the cache; buffers: its outputs
    record_starts     positions at which a range of a segment may be cut
    columns           fixed fields and hosts
    properties        entries, including those that have columns of their own
    strings           copies, and numbers for distinct values; utf8
    truncation_guard  the handler for mapped files that are truncated

A format's own loops are in its package: `formats.rocketmq.kernel`, `formats.jmq.kernel`.

All functions take the window as a uint8 array, with `memory_access.PADDING` readable bytes after the bytes that count,
and positions as int64. They trust positions that `walk_records` has checked, and only those. No function here allocates
or counts references: the caller keeps all arguments alive.
"""
