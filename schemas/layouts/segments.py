"""Names of the files that make one log: the offset of the first byte, in 20 decimal digits.

Source: UtilAll.offset2FileName. The formatter follows the JVM's locale, so digits of other scripts occur and are read.
"""

from __future__ import annotations

NAME_LENGTH = 20
DEFAULT_SEGMENT_SIZE = 1 << 30


def segment_name(start_offset: int) -> str:
    """The name of the file whose first byte has this offset."""
    return f"{start_offset:0{NAME_LENGTH}d}"


def parse_segment_name(name: str) -> int | None:
    """The offset that a file's name tells, or None where it is not the name of a segment."""
    return int(name) if len(name) == NAME_LENGTH and name.isdecimal() else None
