"""Errors for bytes that do not match their format.

LayoutError (ValueError)      bytes that do not match their format: offset, field, expected, found
└── UnserializableError       values that do not fit in the format, a mistake of the caller
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class LayoutError(CommitLakeError, ValueError):
    """Error for bytes that do not match their format.

    Attributes:
        field: name of the invalid field, as declared in the layout.
        offset: position of the field in the parsed buffer, in bytes.
        expected: description of the expected value.
        found: description of the actual value.
    """

    def __init__(self, field: str, offset: int, expected: str, found: str) -> None:
        super().__init__(field, offset, expected, found)  # so that the error can be pickled
        self.field = field
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.field} at byte {self.offset}: expected {self.expected}, found {self.found}"


class UnserializableError(LayoutError):
    """Error for a value that does not fit in the format; nothing was written."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(field, 0, expected, found)
        self.args = (field, expected, found)  # constructor arguments for unpickling
