"""Action of an option that takes one value, and is refused if it is given twice.

Otherwise the first of two values would be ignored silently.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class Once(argparse.Action):
    """Store one value; for options without a default that choose rows."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 (argparse's signature)
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Store the value.

        Raises:
            argparse.ArgumentError: if the option has a value already.
        """
        if getattr(namespace, self.dest, None) is not None:
            raise argparse.ArgumentError(self, "expected one value, but it is given more than once")
        setattr(namespace, self.dest, values)
