"""Registry of the log formats that can be read."""

from __future__ import annotations

import re

from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.log_format.format import Format, Formats

_FORMATS: dict[str, Format] = {}


def register(log_format: Format) -> None:
    """Register a format; it replaces an earlier one of the same name."""
    _FORMATS[log_format.name] = log_format


register(ROCKETMQ)
register(JMQ)


def all_formats() -> Formats:
    """Return the registered formats, in the order of their registration."""
    known = tuple(_FORMATS.values())
    return Formats(known, known)


def format_for_restore() -> Format:
    """Return the log format in which a store is recreated from the rows of a lake."""
    return next(log_format for log_format in all_formats() if log_format.can_be_restored)


ANY_FORMAT = all_formats()
"""Stores of any format."""
COMMITLOGS, JOURNALS = ANY_FORMAT.select_only(ROCKETMQ), ANY_FORMAT.select_only(JMQ)
"""Stores of RocketMQ, and stores of JMQ; a read takes the former where no format is named."""


def get_format(name: str) -> Format:
    """Return the format with the given name.

    Raises:
        KeyError: if there is none.
    """
    return _FORMATS[name]


def format_of_id(msg_id: str) -> Format | None:
    """Return the format whose messages have ids of the form of `msg_id`, or None."""
    return next((log_format for log_format in all_formats() if re.search(log_format.id_pattern, msg_id)), None)
