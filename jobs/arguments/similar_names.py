"""Suggestions of similar existing names when a name does not exist, as part of a warning or an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from commitlake.jobs.cli.terminal import print_line

_SHOWN = 8


def suggest_similar_name(name: str, known_names: Iterable[str]) -> str:
    """Return a suggestion, "Did you mean", with the most similar known name; empty if none is similar.

    >>> suggest_similar_name("ordes", ["orders", "payments"])
    " Did you mean 'orders'?"
    """
    close = difflib.get_close_matches(name, list(known_names), n=1)
    return f" Did you mean {close[0]!a}?" if close else ""


def suggest_similar_option(name: str, options: Iterable[str]) -> str:
    """Return a suggestion, "Did you mean", with the most similar option; the leading dashes are not compared.

    >>> suggest_similar_option("--lak", ["--lake", "--store"])
    " Did you mean '--lake'?"
    >>> suggest_similar_option("--keep", ["--lake", "--store"])
    ''
    """
    close = difflib.get_close_matches(name.lstrip("-"), [option.lstrip("-") for option in options], n=1)
    return f" Did you mean {'--' + close[0]!a}?" if close else ""


def suggest_or_list_names(name: str, known_names: Iterable[str]) -> str:
    """Return "Did you mean" with the most similar known name or, if none is similar, a list of the known names.

    >>> suggest_or_list_names("ordes", ["orders", "payments"])
    " Did you mean 'orders'?"
    >>> suggest_or_list_names("x", ["orders", "payments"])
    ' There are: orders, payments'
    """
    names = list(known_names)
    return suggest_similar_name(name, names) or (
        f" There are: {shorten_name_list(names)}" if names else " There are none"
    )


def known_names_hint(known_names: Iterable[str]) -> str:
    """Return a hint that lists the known names; a long list is cut, with the number of omitted names."""
    names = shorten_name_list(known_names)
    return f"there are: {names}" if names else "there are none"


def shorten_name_list(names_to_list: Iterable[str]) -> str:
    """Return sorted names separated by commas; a long list is cut, with the number of omitted names."""
    names = sorted(names_to_list)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(ascii(name)[1:-1] for name in names[:_SHOWN]) + more


def print_warning(program: str, message: str) -> None:
    """Print a warning on standard error."""
    print_line(f"{program}: warning: {message}")
