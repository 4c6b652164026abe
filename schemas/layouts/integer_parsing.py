"""Parsers of integers in untrusted text: properties, headers, names of files, configuration.

Python's `int` is not suitable for such text. It raises an error for more than 4,300 digits, returns numbers that fit no
field, and accepts spaces, underscores and digits of every script. The functions here accept what Java's
Integer.parseInt and Long.parseLong do: an optional sign, then digits including leading zeros, within the range of the
type. One difference: only the digits 0 to 9 are accepted, as in the compiled readers.

    parse_int32("-5")                      -5
    parse_int64("9" * 5000)                None
    require_int("7x", "queueId", 0, 255)   NumberError: queueId: expected a whole number from 0 to 255, found '7x'
"""

from __future__ import annotations

import math
import re

from commitlake.schemas.errors import CommitLakeError

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_SHORT_DIGITS = 18
"""Number of digits that always fits in 64 bits."""
_MAX_DIGITS = 20
_SHOWN_CHARACTERS = 40
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")


class NumberError(CommitLakeError, ValueError):
    """Error for text that is not a number of the expected range; the message is for a user."""

    def __init__(self, name: str, minimum: int, maximum: int, found: str) -> None:
        super().__init__(name, minimum, maximum, found)  # so that the error can be pickled
        self._message = f"{name}: expected a whole number from {minimum} to {maximum}, found {_shorten(found)}"

    def __str__(self) -> str:
        return self._message


def parse_int32(text: str | None) -> int | None:
    """Parse a 32-bit integer like Java's Integer.parseInt; return None if the text is missing or invalid."""
    return parse_int(text, INT32_MIN, INT32_MAX)


def parse_int64(text: str | None) -> int | None:
    """Parse a 64-bit integer like Java's Long.parseLong; return None if the text is missing or invalid."""
    return parse_int(text, INT64_MIN, INT64_MAX)


def parse_int(text: str | None, minimum: int, maximum: int) -> int | None:
    """Parse an integer from `minimum` to `maximum`; return None if the text is missing, invalid or out of range.

    Args:
        text: text of any length; the time is linear in its length.
        minimum: smallest valid number, at least -(1 << 64).
        maximum: largest valid number, at most 1 << 64.
    """
    if text is None or not text.isascii():
        return None
    if len(text) <= _SHORT_DIGITS and text.isdecimal():
        number = int(text)
    else:
        digits = text[1:] if text[:1] in {"+", "-"} else text
        if not digits.isdecimal():
            return None
        digits = digits.lstrip("0")
        if len(digits) > _MAX_DIGITS:
            return None
        number = int(digits or "0")
        if text[0] == "-":
            number = -number
    return number if minimum <= number <= maximum else None


def require_int(text: str, name: str, minimum: int, maximum: int) -> int:
    """Parse an integer from `minimum` to `maximum`; raise an error if the text is invalid or out of range.

    Args:
        text: see `parse_int`.
        name: name of the field, for the error.
        minimum: smallest valid number.
        maximum: largest valid number.

    Raises:
        NumberError: if the text is not a number of the range.
    """
    number = parse_int(text, minimum, maximum)
    if number is None:
        raise NumberError(name, minimum, maximum, text)
    return number


def parse_decimal(text: str) -> float | None:
    """Parse a decimal number such as `-1.5` or `1e3`; return None if it is invalid or too large for a float."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def int_in_range(value: object, minimum: int, maximum: int) -> int | None:
    """Return a value parsed from JSON or TOML if it is an integer in the range, else None; a boolean gives None."""
    return value if type(value) is int and minimum <= value <= maximum else None


def _shorten(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return repr(text)
    return f"{text[:_SHOWN_CHARACTERS]!r} and {len(text) - _SHOWN_CHARACTERS} more characters"
