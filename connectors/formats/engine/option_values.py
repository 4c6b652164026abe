"""Parsers of option values from Spark's strings; an invalid value is an error that names its option."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.registry import FormatChoice
from commitlake.schemas.layouts.numbers import parse_int64
from commitlake.schemas.times import epoch_ms, with_zone

_E = TypeVar("_E", bound=StrEnum)


class Start(StrEnum):
    """Start of a stream for which neither offsets nor a time are given."""

    EARLIEST = "earliest"
    LATEST = "latest"


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class OptionValues:
    """Reader of typed values from strings."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def choice(self, name: str, enum: type[_E], default: _E, *, upper: bool = False) -> _E:
        """Return one of a few words."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return enum(text.upper() if upper else text.lower())
        except ValueError:
            raise OptionError(f"option {name}: expected {', '.join(enum)}, found {text!r}") from None

    def format_choice(self, name: str, default: FormatChoice) -> FormatChoice:
        """Return the log format that a value names, or the choice of any format."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return FormatChoice.parse(text.lower())
        except ValueError:
            raise OptionError(f"option {name}: expected {', '.join(FormatChoice.words())}, found {text!r}") from None

    def number(self, name: str) -> int | None:
        """Return an integer."""
        text = self._values.get(name)
        if text is None:
            return None
        number = parse_int64(text)
        if number is None:
            raise OptionError(f"option {name}: expected a whole number, found {text[:100]!r}")
        return number

    def time(self, name: str) -> int | None:
        """Return a time, in ms since 1970."""
        text = self._values.get(name)
        if text is None:
            return None
        milliseconds = parse_int64(text)
        if milliseconds is not None:
            return milliseconds
        try:
            return epoch_ms(with_zone(datetime.datetime.fromisoformat(text)))
        except ValueError:
            raise OptionError(
                f"option {name}: expected ms since 1970 or a time such as 2026-11-20T14:00, found {text!r}"
            ) from None

    def start(self, name: str) -> int | Start | dict[str, int] | None:
        """Return the start of a stream."""
        text = self._values.get(name)
        if text is None:
            return None
        if text.lower() in list(Start):
            return Start(text.lower())
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, int) and _is_offset(value):
            return value
        if isinstance(value, dict) and all(_is_offset(offset) for offset in value.values()):
            return value
        raise OptionError(
            f"option {name}: expected a physical offset, earliest, latest or JSON such as "
            f'{{"broker-a": 1073741824}}, found {text!r}'
        )

    def size(self, name: str, default: int) -> int:
        """Return a number of bytes."""
        return self.least(name, default, 1, "byte")

    def least(self, name: str, default: int, least: int, unit: str) -> int:
        """Return an integer with a minimum."""
        value = self.number(name)
        if value is None:
            return default
        if value < least:
            raise OptionError(f"option {name}: expected at least {least} {unit}, found {value}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        text = self._values.get(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"option {name}: expected true or false, found {text!r}")
        return text.lower() == "true"

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return the words of a comma-separated option; None if it is not given."""
        text = self._values.get(name)
        if text is None:
            return None
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise OptionError(f"option {name}: expected at least one name, found {text!r}")
        return names

    def numbers(self, name: str) -> frozenset[int] | None:
        """Return the integers of a comma-separated option; None if it is not given."""
        names = self.names(name)
        if names is None:
            return None
        numbers = {parse_int64(text) for text in names}
        known = frozenset(number for number in numbers if number is not None)
        if len(known) < len(numbers):
            raise OptionError(f"option {name}: expected whole numbers, found {self._values[name][:100]!r}")
        return known
