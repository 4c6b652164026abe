"""What can be wrong with bytes.

LayoutError (ValueError)      bytes that cannot be what they claim: offset, field, expected, found
└── UnserializableError       values that the format has no room for: the caller's mistake
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class LayoutError(CommitLakeError, ValueError):
    """Bytes that break their format.

    Attributes:
        field: name of the field that is wrong, as the layout declares it.
        offset: position of the field in the buffer that was parsed, in bytes.
        expected: what the format asks for, in words.
        found: what stands there, in words.
    """

    def __init__(self, field: str, offset: int, expected: str, found: str) -> None:
        super().__init__(field, offset, expected, found)  # all of them, so that the error can be pickled
        self.field = field
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.field} at byte {self.offset}: expected {self.expected}, found {self.found}"


class UnserializableError(LayoutError):
    """A value that does not fit the format; nothing was written."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(field, 0, expected, found)
        self.args = (field, expected, found)  # what it is made of when it is unpickled
