"""Offsets of streams that Spark has kept in a checkpoint: their version, and damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from commitlake.schemas.errors import CommitLakeError

_SHOWN_CHARACTERS = 200

Offsets = TypeVar("Offsets")


def read_checkpoint(
    value: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], Offsets],
    *,
    version: int,
    expected: str,
    error: type[CommitLakeError],
) -> Offsets:
    """Return the offsets in what Spark has kept.

    Args:
        value: what it has kept.
        read: takes the offsets out of it; any of the errors of a wrong type or key means that it is damaged.
        version: the source's own version of offsets.
        expected: what `read` looks for, in words.
        error: the class of the error that is raised.

    Raises:
        CommitLakeError: of the given class, if they are of another version, or damaged.
    """
    shown = json.dumps(value)[:_SHOWN_CHARACTERS]
    if value.get("version") != version:
        raise error(
            f"the stream's checkpoint has offsets of version {value.get('version')!r}, expected {version}: another "
            f"version of this source has written it, or another source ({shown}). Begin with a new checkpoint"
        )
    try:
        return read(value)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise error(
            f"the stream's checkpoint is damaged: expected {expected}, found {problem!r} in {shown}. "
            "Begin with a new checkpoint"
        ) from None
