"""Compiled part of the reader: converts a window of log bytes to Arrow buffers, without Python objects per message.

    layouts     what differs from layout to layout, chosen when a loop is compiled
    compiled    how functions are compiled; function_cache: where the result is kept
    memory      unaligned loads and stores, looks at 64 bytes at once
    crc         CRC-32, by carry-less multiply (folding) where the processor has it
    hop         from record to record, and where each record's parts lie
    decode      hop and columns in one go, while a record is in the cache; what it writes to is in buffers
    borders     where a range of a segment may be cut
    columns     fixed fields and hosts
    properties  entries, and those that have columns of their own
    strings     copies, and distinct values by number; utf8
    guard       the handler for mapped files that are cut

A format's own loops are in its package: `formats.rocketmq.kernel`, `formats.jmq.kernel`.

All functions take the window as a uint8 array, with `memory.PADDING` readable bytes after the bytes that count, and
positions as int64. They trust positions that `hop` has checked, and only those. Nothing here allocates, and nothing
counts references: what a function is given, its caller keeps.
"""
