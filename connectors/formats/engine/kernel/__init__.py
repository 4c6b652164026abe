"""The compiled part of the source: from a window of log bytes to Arrow buffers, with no Python object per message.

    layouts     what differs from layout to layout, chosen when a loop is compiled
    compiled    how functions are compiled, and where the result is kept
    memory      unaligned loads and stores, looks at 64 bytes at once
    crc         CRC-32, by carry-less multiply (folding) where the processor has it
    hop         from record to record, and where each record's parts lie
    decode      hop and columns in one go, while a record is in the cache; what it writes to is in buffers
    commitlog   RocketMQ's records: the rules of schemas.layouts.rocketmq.scan; commitlog_columns: their columns
    journal/    JMQ's records: the rules of schemas.layouts.jmq.scan; their columns and properties
    columns     fixed fields, hosts, message ids
    properties  entries, and those that have columns of their own
    strings     copies, and distinct values by number; utf8
    guard       the handler for mapped files that are cut

All functions take the window as a uint8 array, with `memory.PADDING` readable bytes behind what counts, and positions
as int64. They trust positions that `hop` has checked, and only those. Nothing here allocates, and nothing counts
references: what a function is given, its caller keeps.
"""
