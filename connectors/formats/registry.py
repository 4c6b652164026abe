"""Registry of the log formats that can be read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from commitlake.connectors.formats.format import Format
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ

_FORMATS: dict[str, Format] = {}
_ANY = "any"


def register(log_format: Format) -> None:
    """Register a format; it replaces an earlier one of the same name."""
    _FORMATS[log_format.name] = log_format


register(ROCKETMQ)
register(JMQ)

DEFAULT_FORMAT: Format = ROCKETMQ
"""Default format."""


def all_formats() -> tuple[Format, ...]:
    """Return the registered formats, in the order of their registration."""
    return tuple(_FORMATS.values())


def format_named(name: str) -> Format:
    """Return the format with a name.

    Raises:
        KeyError: if there is none.
    """
    return _FORMATS[name]


def format_of_folder(folder: str) -> Format | None:
    """Return the format whose segments are in a folder of this name, or None."""
    return next((log_format for log_format in all_formats() if log_format.folder == folder), None)


def format_called(text: str) -> Format | None:
    """Return the format for a folder name, a format name or an alias; None for unknown text."""
    for log_format in all_formats():
        if text in (log_format.folder, log_format.name, *log_format.aliases):
            return log_format
    return None


def format_of_id(msg_id: str) -> Format | None:
    """Return the format whose rows have a `msg_id` of this form, or None."""
    return next((log_format for log_format in all_formats() if re.search(log_format.id_pattern, msg_id)), None)


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """Choice of stores at a path: those of one format, or of any.

    Attributes:
        chosen: the format; None for any.
    """

    chosen: Format | None = None

    @classmethod
    def parse(cls, text: str) -> FormatChoice:
        """Parse the choice in an option's text.

        Raises:
            ValueError: if the text is no valid choice.
        """
        if text == _ANY:
            return cls()
        chosen = format_called(text)
        if chosen is None:
            raise ValueError(text)
        return cls(chosen)

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Return the preferred texts for options."""
        return (*(log_format.folder for log_format in all_formats()), _ANY)

    @property
    def formats(self) -> tuple[Format, ...]:
        """Formats of this choice."""
        return all_formats() if self.chosen is None else (self.chosen,)

    def __str__(self) -> str:
        return _ANY if self.chosen is None else self.chosen.folder


ANY_FORMAT = FormatChoice()
