"""Names of log files (segments) and of queue folders.

The name of a file is the offset of its first byte, in 20 decimal digits. Source: UtilAll.offset2FileName. Java's
formatter uses the JVM's locale, so digits of other scripts occur and are accepted. The name of a queue's folder is its
id, in ASCII.
"""

from __future__ import annotations

from commitlake.schemas.layouts.integer_parsing import INT32_MAX, parse_int

NAME_LENGTH = 20
DEFAULT_SEGMENT_SIZE = 1 << 30
MAX_START_OFFSET = 1 << 62
"""Logs never get this long; below this limit, sums of an offset and a size fit in 64 bits."""
MAX_QUEUE_OFFSET = 1 << 56
"""Queues never get this long; below this limit, positions of entries in their files fit in 64 bits."""


def max_entry_number(entry_size: int) -> int:
    """Return the largest entry number that queue files can have, for entries of the given size.

    A larger number, times the entry size, would not be a valid offset; only damaged or forged records have one.
    """
    return (1 << 63) // entry_size // 2


def segment_name(start_offset: int) -> str:
    """Return the name of the segment file whose first byte has the given offset."""
    return f"{start_offset:0{NAME_LENGTH}d}"


def is_segment_name(name: str) -> bool:
    """Return whether a file name is that of a segment."""
    return parse_segment_name(name) is not None


def parse_segment_name(name: str) -> int | None:
    """Return the start offset in the name of a segment file, or None if the name is not that of a segment."""
    if len(name) != NAME_LENGTH or not name.isdecimal():
        return None
    offset = int(name)  # has at most 20 digits
    return offset if offset <= MAX_START_OFFSET else None


def parse_queue_folder(name: str) -> int | None:
    """Return the queue id in a folder name, or None if the folder is not a queue's."""
    number = parse_int(name, 0, INT32_MAX)
    return number if str(number) == name else None
