"""Names of options of the Spark sources, which Spark passes with any capitalization."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence


def known_options(given: Mapping[str, str], known: Sequence[str], error: type[Exception]) -> dict[str, str]:
    """Return the given options under their documented names.

    Args:
        given: the options from Spark.
        known: the documented names.
        error: the source's exception for unknown names.

    Raises:
        Exception: `error`, if a name is not known.
    """
    names = {name.lower(): name for name in known}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in names:
            close = difflib.get_close_matches(name.lower(), list(names), n=1)
            nearest = f" (did you mean {names[close[0]]!r}?)" if close else ""
            raise error(f"unknown option {name!r}{nearest}; known are {', '.join(known)}")
        values[names[name.lower()]] = value
    return values
