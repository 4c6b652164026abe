"""Names that a user gives and that are not there: the nearest ones that are, and a warning or an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from commitlake.jobs.cli.terminal import print_line

_SHOWN = 8


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names what is nearest, with a space before it; nothing where nothing is near.

    >>> did_you_mean("ordes", ["orders", "payments"])
    " Did you mean 'orders'?"
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!a}?" if close else ""


def there_are(known: Iterable[str]) -> str:
    """Return the names that there are, as a hint; of many, the first."""
    names = some_names(known)
    return f"there are: {names}" if names else "there are none"


def some_names(known: Iterable[str]) -> str:
    """Return names, sorted, with commas between; of many, the first."""
    names = sorted(known)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(ascii(name)[1:-1] for name in names[:_SHOWN]) + more


def warn(prog: str, message: str) -> None:
    """Print a warning on standard error."""
    print_line(f"{prog}: warning: {message}")
