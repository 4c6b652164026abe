"""Counts with their nouns, for messages to users."""

from __future__ import annotations


def format_count(count: float, singular: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or plural, such as `1 file` or `3 files`.

    Args:
        count: the number.
        singular: the noun for one; a verb may follow it.
        plural: the noun for any other number; by default, `singular` with an s.

    >>> [format_count(number, "queue") for number in (0, 1, 1203)]
    ['0 queues', '1 queue', '1,203 queues']
    >>> [format_count(number, "body is", "bodies are") for number in (1, 2)]
    ['1 body is', '2 bodies are']
    """
    return f"{count:,.0f} {singular if count == 1 else plural or singular + 's'}"
