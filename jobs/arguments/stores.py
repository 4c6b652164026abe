"""Types of arguments that several jobs on stores share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from commitlake.connectors.storage.uris import has_scheme
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import Options, Rule, StoreOnceAction, argument, option
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_decimal, parse_int


def make_integer_parser(minimum: int, maximum: int = INT64_MAX) -> Callable[[str], int]:
    """Return a function for argparse's `type` that parses a whole number between a minimum and a maximum."""
    wanted = f"{minimum} or more" if maximum == INT64_MAX else f"{minimum} to {maximum}"

    def parse_bounded_integer(text: str) -> int:
        found = parse_int(text, minimum, maximum)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected a whole number, {wanted}")
        return found

    return parse_bounded_integer


def declare_store_argument(help_text: str) -> str | None:
    """Declare the positional argument for a store, with the alternative option `--store`."""
    return cast("str | None", argument(help_text, equivalent_option_help="the same as STORE", metavar="STORE"))


def require_store(store: str | None) -> str:
    """Return the given store; raise an error if there is none.

    Raises:
        JobError: if none is given.
    """
    if store is None:
        raise JobError(
            "no store is named: expected the folder of a broker's store",
            "name the folder that holds commitlog/ or journal/",
        )
    return store


def declare_broker_option(
    help_text: str = "the store's name (default: brokerName in broker.conf beside the store, or the folder's name)",
    rules: Sequence[Rule] = (),
) -> str | None:
    """Declare the option `--broker` of a command that reads one store: the name of that store."""
    return option(help_text, action=StoreOnceAction, rules=rules)


@dataclass(frozen=True, kw_only=True)
class StoreName(Options):
    """The option `--broker` of a command that reads one store: the name of that store."""

    broker: str | None = declare_broker_option()


positive = make_integer_parser(1)
"""Argument type of a whole number of at least 1."""
_SIZE = re.compile(r"(?P<number>[^KMG]*?) ?(?P<unit>[KMG]iB)?")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_file_size(text: str) -> int:
    """Parse the size of a file: a number of bytes, or one with a unit, as in `16MiB`.

    Raises:
        argparse.ArgumentTypeError: if it is not such a size, or less than one byte.
    """
    found = _SIZE.fullmatch(text.strip())
    number = parse_decimal(found["number"]) if found else None
    size = 0 if number is None else number * _UNITS.get(found["unit"] if found else "", 1)
    if not 1 <= size <= INT64_MAX or size != int(size):
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected a number of bytes, or a size as in 16MiB")
    return int(size)


def parse_folder_text(text: str) -> str:
    """Check that a text is the path of a local folder, not a URI, and return it unchanged.

    Raises:
        argparse.ArgumentTypeError: for a URI, which would become a folder of this machine with a name such as "gs:".
    """
    if has_scheme(text):
        raise argparse.ArgumentTypeError(
            f"{text[:100]!r} is a URI: expected the path of a local folder. Mount an object store as a folder"
        )
    return text


def parse_folder_path(text: str) -> Path:
    """Check that a text is the path of a local folder, not a URI, and return it as a `Path`."""
    return Path(parse_folder_text(text))


def parse_positive_decimal(text: str, value_name: str, maximum: float = math.inf) -> float:
    """Parse a number, possibly with a fraction, that is greater than 0 and at most a maximum.

    Args:
        text: value of an option.
        value_name: name of the value, for the error.
        maximum: the largest allowed number.

    Raises:
        argparse.ArgumentTypeError: if it is not such a number.
    """
    number = parse_decimal(text)
    if number is None or not 0 < number <= maximum:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a {value_name}")
    return number


def parse_delay_levels_option(text: str) -> tuple[int, ...]:
    """Parse delay levels in the form of a broker's messageDelayLevel, and return the delay of each in ms."""
    from commitlake.schemas.layouts.rocketmq.broker_conf import parse_delay_levels

    try:
        return parse_delay_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
