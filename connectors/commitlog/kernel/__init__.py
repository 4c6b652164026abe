"""The compiled part of the source: from a window of log bytes to Arrow buffers, with no Python object per message.

    memory    unaligned big-endian loads
    crc       CRC-32, by carry-less multiply where the processor has it
    hop       from record to record: the rules of schemas.layouts.scan, and where each record's parts lie
    columns   fixed fields, repeated strings, copied strings, message ids
    text      properties, keys, UTF-8

All functions take the window as a uint8 array and positions as int64. They trust positions that `hop` has checked, and
only those: nothing here looks outside the window.
"""
