"""Checks of a stream's offsets from Spark's checkpoint: whether they are damaged, and which version they have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from commitlake.schemas.errors import UsageError

_SHOWN_CHARACTERS = 200

Offsets = TypeVar("Offsets")


def read_checkpoint(
    value: Mapping[str, Any],
    parse: Callable[[Mapping[str, Any]], Offsets],
    *,
    version: int,
    expected: str,
) -> Offsets:
    """Return the offsets in the value that Spark stored for a stream, and refuse another version or damage.

    Args:
        value: stored value.
        parse: extracts the offsets; an error for a wrong type or key means damage.
        version: version of the source's offsets.
        expected: description of what `parse` expects.

    Raises:
        UsageError: if the offsets have another version or are damaged.
    """
    shown = json.dumps(value)[:_SHOWN_CHARACTERS]
    if value.get("version") != version:
        raise UsageError(
            f"the stream's checkpoint has version {value.get('version')!r}, expected version {version}: another "
            f"version of this source, or another source, wrote it ({shown}). Start with a new checkpoint"
        )
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UsageError(
            f"the stream's checkpoint is damaged: expected {expected}, found {problem!r} in {shown}. "
            "Start with a new checkpoint"
        ) from None
