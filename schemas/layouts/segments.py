"""Names of the files that make one log, and of the folders of queues.

A file's name is the offset of its first byte, in 20 decimal digits. Source: UtilAll.offset2FileName. The formatter
follows the JVM's locale, so digits of other scripts occur and are read. A queue's folder is its number, in ASCII.
"""

from __future__ import annotations

from commitlake.schemas.layouts.numbers import INT32_MAX, parse_int

NAME_LENGTH = 20
DEFAULT_SEGMENT_SIZE = 1 << 30
MAX_START_OFFSET = 1 << 62
"""No log gets this long; below it, sums of an offset and a size fit 64 bits."""
MAX_QUEUE_OFFSET = 1 << 56
"""No queue gets this long; below it, the places of entries in its files fit 64 bits."""


def max_entry_number(entry_size: int) -> int:
    """Return the largest number of an entry in a queue's files.

    A larger one, times the entry's size, would not be an offset; only a damaged or forged record has it.
    """
    return (1 << 63) // entry_size // 2


def segment_name(start_offset: int) -> str:
    """The name of the file whose first byte has this offset."""
    return f"{start_offset:0{NAME_LENGTH}d}"


def is_segment_name(name: str) -> bool:
    """Tell whether a file's name is that of a segment."""
    return parse_segment_name(name) is not None


def parse_segment_name(name: str) -> int | None:
    """Return the offset in a file's name, or None where it is not the name of a segment."""
    if len(name) != NAME_LENGTH or not name.isdecimal():
        return None
    offset = int(name)  # of 20 digits at most
    return offset if offset <= MAX_START_OFFSET else None


def parse_queue_folder(name: str) -> int | None:
    """Return the queue's number in a folder's name, or None where the folder is not a queue's."""
    number = parse_int(name, 0, INT32_MAX)
    return number if str(number) == name else None
