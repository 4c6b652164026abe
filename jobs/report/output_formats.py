"""The option `--format`, which has the same meaning in every job that prints rows.

table  for people: as wide as the terminal, or 120 columns (or $COLUMNS) in a pipe or file. What does not fit is left
       out or shortened, which is said on standard error; `--full` shows all
json   one JSON document: an object with `schema`, which is `SCHEMA`, and `rows`, a list of objects; if the answer
       lacks messages, also `missing`, a list of sentences
jsonl  one row per line, as a JSON object
csv    a header and one line per row; lists and objects in a cell are JSON. Texts that a spreadsheet would run as a
       formula begin with a quote

`SCHEMA` is the version of the output for programs. Keys and values may be added without a new version; if one is
removed or changes its meaning, the number is increased. Keys of each job are listed in docs/reference/json-output.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

from commitlake.jobs.cli.options import Options, Rule, flag, option, shorthand_option
from commitlake.schemas.times import SHOWN_ZONE

SCHEMA = "commitlake.output/1"
FORMS = ("table", "json", "jsonl", "csv")


@dataclass(frozen=True, slots=True)
class Display:
    """Settings of a job's output for people.

    Attributes:
        is_full: True to show all columns and whole texts.
        is_local: True to show times in the local time zone.
        is_quiet: True to leave out remarks about the output itself, such as hidden columns.
        is_command: True if the job has the option `--full`, which remarks may then mention.
    """

    is_full: bool = False
    is_local: bool = False
    is_quiet: bool = False
    is_command: bool = False


_DISPLAY: ContextVar[Display] = ContextVar("display", default=Display())  # noqa: B039 (it is frozen)


def current_display() -> Display:
    """Return the output settings of the running job."""
    return _DISPLAY.get()


@contextmanager
def use_display(settings: Display) -> Iterator[None]:
    """While the block runs, use a job's output settings, also for the time zone of printed times."""
    token, zone = _DISPLAY.set(settings), SHOWN_ZONE.set(None if settings.is_local else datetime.UTC)
    try:
        yield
    finally:
        _DISPLAY.reset(token)
        SHOWN_ZONE.reset(zone)


@dataclass(frozen=True, kw_only=True)
class DisplayArguments(Options):
    """Options for output that people read."""

    full: bool = flag(
        "show all columns and whole texts of a table; in a pipe as wide as they are, and on a terminal in blocks if "
        "they do not fit"
    )
    local_time: bool = flag(
        "show times in the local time zone instead of UTC; json, jsonl, csv and pages are always in UTC"
    )


def format_option(
    help_text: str = "output format", more_formats: Sequence[str] = (), rules: Sequence[Rule] = ()
) -> str:
    """Declare `--format`; `--output` is its older name.

    Args:
        more_formats: further forms of this command.
    """
    choices = (*FORMS, *more_formats)
    return option(
        f"{help_text} (default: table)", "--format", "--output", choices=choices, default="table", rules=rules
    )


@dataclass(frozen=True, kw_only=True)
class OutputArguments(DisplayArguments, after={DisplayArguments: "output"}):
    """Options for the format of printed rows."""

    output: str = format_option()


@dataclass(frozen=True, kw_only=True)
class JsonArgument(Options):
    """The option `--json`, an older name of `--format jsonl`."""

    json: ClassVar = shorthand_option("same as --format jsonl", output="jsonl")
