"""The option `--format`, which has the same meaning in every job that prints rows.

table  for people: columns as wide as they need to be; a job may leave out columns
json   one JSON document: an object with `schema`, which is `SCHEMA`, and `rows`, a list of objects; if the answer
       lacks messages, also `missing`, a list of sentences
jsonl  one row per line, as a JSON object
csv    a header and one line per row; lists and objects in a cell are JSON

`SCHEMA` is the version of the output for programs. Keys and values may be added without a new version; if one is
removed or changes its meaning, the number is increased. Keys of each job are listed in docs/reference/json-output.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

SCHEMA = "commitlake.output/1"
FORMS = ("table", "json", "jsonl", "csv")


def add_format_argument(parser: argparse.ArgumentParser, more: Sequence[str] = (), scope: str = "") -> None:
    """Add `--format`; `--output` is its older name. Both set `output`.

    Args:
        parser: parser of a job.
        more: further forms of this job.
        scope: the part of the output in this form, if not all of it, for the help.
    """
    text = "output format" if not scope else f"output format of {scope}"
    parser.add_argument(
        "--format",
        "--output",
        dest="output",
        choices=(*FORMS, *more),
        default="table",
        help=f"{text} (default: table)",
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, an older name of `--format jsonl`."""
    parser.add_argument("--json", dest="output", action="store_const", const="jsonl", help="same as --format jsonl")
