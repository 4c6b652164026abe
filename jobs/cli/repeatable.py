"""The action of options that may be repeated, which says so in the option's help."""

from __future__ import annotations

import argparse
from typing import Any

_NOTE = "; may be repeated"
_DEFAULT = " (default"


class Repeatable(argparse._AppendAction):  # noqa: SLF001 (configargparse reads lists from files for this class only)
    """Append each value to a list; the action "append" of all jobs' parsers.

    The help gets the words "may be repeated", before the default if it states one.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.help and self.help != argparse.SUPPRESS:
            text, default, rest = self.help.partition(_DEFAULT)
            self.help = text + _NOTE + default + rest
