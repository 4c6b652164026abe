"""`poe bench`: measure reading and archiving on this machine, compared with other programs for the same task.

broker_lite writes the stores. Everything is warmed up first, and compared passes take turns. The output ends with a
table of figures and one of ratios, each with its target.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks.machine import machine
from tests.benchmarks.report import SECTIONS, print_report, write_json
from tests.benchmarks.suite import Plan, measure
from tests.benchmarks.targets import ratios

_TABLE_WIDTH = 160


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    sections = "; ".join(f"{letter}: {what}" for letter, what in SECTIONS.items())
    parser = argparse.ArgumentParser(prog="poe bench", description=__doc__.splitlines()[0], epilog=sections)
    parser.add_argument("--gib", type=float, default=1.0, help="size of a store (default: 1)")
    parser.add_argument("--bodies", type=_numbers, default=[1024, 200, 4096], metavar="N,...",
                        help="bytes of a body, a store each (default: 1024,200,4096)")  # fmt: skip
    parser.add_argument("--sizes", type=_numbers, default=[1, 2, 4], metavar="N,...",
                        help="sizes of the growing store, times --gib (default: 1,2,4)")  # fmt: skip
    parser.add_argument("--runs", type=int, default=3, help="passes that count (default: 3)")
    parser.add_argument("--only", type=_letters, default=",".join(SECTIONS), metavar="a,b,...",
                        help="parts to measure (default: all)")  # fmt: skip
    parser.add_argument("--dir", type=Path, help="where to work; its stores are kept for the next run "
                        "(default: a temporary folder, where nothing is)")  # fmt: skip
    parser.add_argument("--output", nargs=2, metavar=("json", "FILE"), help="also write everything to a file")
    return parser


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on, found {text}")
    return numbers


def _letters(text: str) -> str:
    letters = [part.strip() for part in text.split(",")]
    if not set(letters) <= SECTIONS.keys():
        raise argparse.ArgumentTypeError(f"expected some of {','.join(SECTIONS)}, found {text}")
    return "".join(letters)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 even if a target is missed, because that is a result."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.output and arguments.output[0] != "json":
        parser.error(f"--output: expected json, found {arguments.output[0]}")
    plan = Plan(arguments.gib, arguments.bodies, arguments.sizes, arguments.runs, arguments.only)
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_TABLE_WIDTH)  # in a file, a table need not fit in a terminal
    ran_on = machine()
    started = time.monotonic()

    def print_step(what: str) -> None:
        progress.print(f"{time.monotonic() - started:6.1f} s  {what}", highlight=False)

    if arguments.dir:
        arguments.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.dir) as work:
        stores = arguments.dir / "stores" if arguments.dir else Path(work) / "stores"
        figures = measure(plan, stores, Path(work), print_step)
    comparisons = ratios(figures)
    print_report(console, ran_on, figures, comparisons)
    if arguments.output:
        write_json(Path(arguments.output[1]), ran_on, figures, comparisons)
    return 0


if __name__ == "__main__":
    sys.exit(main())
