"""Figures as tables for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.runs import Figure, Figures, Name, Run
from tests.benchmarks.targets import Ratio
from tests.support.corpus import GIB

SECTIONS = {
    "a": "this project's kernel, one core, without Spark",
    "b": "RocketMQ's own Java over the same files, one thread",
    "c": "Spark reads to noop, all cores",
    "d": "archive into a new lake, all cores",
    "e": "what one writes first in PySpark, beside ours, on a sample of the log",
    "f": "what the write needs anyway: Spark's own write of the same rows; zstd of the bodies, two processes",
    "g": "growth",
    "j": "JMQ's journal beside the CommitLog, the same messages: one core, then Spark",
}
_MET = {None: "", True: "[green]yes", False: "[red]no"}


def print_report(
    console: Console, machine: Mapping[str, str | float], figures: Figures, comparisons: list[Ratio]
) -> None:
    """Print machine, figures and comparisons."""
    console.print(machine_line(machine), highlight=False, soft_wrap=True)
    console.print(stores_line(figures), highlight=False, soft_wrap=True)
    console.print(figure_table(figures))
    if comparisons:
        console.print(ratio_table(comparisons))


def machine_line(machine: Mapping[str, str | float]) -> str:
    """Return a description of the machine in one line.

    >>> machine_line({"cpu": "AMD EPYC", "cores": 2, "python": "3.11.7"})
    'AMD EPYC, cores 2, python 3.11.7'
    """
    return ", ".join([str(machine["cpu"]), *(f"{name} {value}" for name, value in machine.items() if name != "cpu")])


def stores_line(figures: Figures) -> str:
    """Return a line with the stores that were read, and the number of passes."""
    stores: dict[tuple[int, int], Run] = {}
    for name, figure in figures.items():
        store = (name.body_bytes, name.factor)
        # A sample is smaller than its store, and Java counts only records, without the filler of a segment.
        stores[store] = max(figure.runs[0], stores.get(store, Run(0, 0)), key=lambda run: (run.messages, run.bytes))
    sizes = [
        f"bodies of {body:,}: {run.bytes / GIB:.2f} GiB, {run.messages:,} messages"
        for (body, _), run in sorted(stores.items())
    ]
    passes = max(len(figure.runs) for figure in figures.values())
    return "; ".join([*sizes, f"passes: {passes}"])


def figure_table(figures: Figures) -> Table:
    """Return a table with a row per figure: seconds, and rates at the median."""
    caption = "\n".join(f"{letter}: {SECTIONS[letter]}" for letter in sorted({name.section for name in figures}))
    table = Table(title="seconds of a pass; rates at the median", title_justify="left", caption=caption,
                  caption_justify="left")  # fmt: skip
    table.add_column("")
    table.add_column("what", no_wrap=True)
    for heading in ("body", "GiB", "messages", "median s", "min", "max", "GB/s", "messages/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("also", overflow="fold")
    before = Name("", "", 0)
    for name, figure in sorted(figures.items(), key=lambda item: item[0].section):
        if (name.section, name.body_bytes, name.factor) != (before.section, before.body_bytes, before.factor):
            table.add_section()
        before = name
        table.add_row(name.section, name.what, *_figure_cells(name, figure))
    return table


def _figure_cells(name: Name, figure: Figure) -> list[str]:
    run = figure.runs[0]
    return [
        f"{name.body_bytes:,}",
        f"{run.bytes / GIB:.2f}",
        f"{run.messages:,}" if run.messages else "",
        f"{figure.median_seconds:.3f}",
        f"{min(figure.seconds):.3f}",
        f"{max(figure.seconds):.3f}",
        f"{figure.bytes_per_second / 1e9:.2f}",
        f"{figure.messages_per_second:,.0f}" if run.messages else "",
        ", ".join(f"{what} {_number(value)}" for what, value in figure.notes.items()),
    ]


def ratio_table(comparisons: list[Ratio]) -> Table:
    """Return a table with a row per comparison and its target."""
    table = Table(title="ratios: at the medians; least and most of a round", title_justify="left")
    table.add_column("what", overflow="fold")
    for heading in ("value", "least", "most", "target"):
        table.add_column(heading, justify="right")
    table.add_column("met")
    for ratio in comparisons:
        bound = f"{'<=' if ratio.at_most else '>='} {_number(ratio.target)} {ratio.unit}" if ratio.target else ""
        values = [_number(value) for value in (ratio.value, ratio.least, ratio.most)]
        table.add_row(ratio.what, *values, bound, _MET[ratio.is_met])
    return table


def _number(value: float | None) -> str:
    """Format a value with three significant digits.

    >>> _number(0.01234), _number(43.21), _number(300000.0)
    ('0.0123', '43.2', '300,000')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_json(path: Path, machine: Mapping[str, str | float], figures: Figures, comparisons: list[Ratio]) -> None:
    """Write the machine, the figures and their comparisons as one JSON object."""
    whole = {
        "machine": dict(machine),
        "figures": [asdict(name) | asdict(figure) for name, figure in figures.items()],
        "ratios": [asdict(ratio) | {"is_met": ratio.is_met} for ratio in comparisons],
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")
