"""Parameters of a notebook, and functions that show sections of a report: sentences, tables and pictures.

On Databricks parameters are widgets. In Jupyter they come from environment variables `COMMITLAKE_…` or the defaults. In
a script, `python notebooks/lag_analysis.py --lake /data/lake`, arguments override both. A script writes pictures only
if `--plots FOLDER` is given.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from commitlake.connectors.atomic_files import open_atomic
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.printable import escape_line, printable
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.stores import parse_positive_decimal
from commitlake.jobs.arguments.times import join_options_and_times, parse_time
from commitlake.jobs.report.markup import tag
from commitlake.jobs.report.page import render_pictures
from commitlake.jobs.report.rows_output import write_table_block
from commitlake.jobs.report.text import block_lines, chart_to_table
from commitlake.schemas.errors import CommitLakeError, UsageError
from commitlake.schemas.report import BarChart, HeatMap, Html, LineChart, Section, Table

ENVIRONMENT_PREFIX = "COMMITLAKE_"
DEMO_LAKE = "commitlake-demo/lake"
PLOTS = "plots"
MAX_ROWS = 1000
"""Largest number of rows shown of a table."""
_FRAME_HEIGHT = 640
"""Height of the frame with pictures in Jupyter, in pixels; what is below is scrolled to."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a notebook.

    Attributes:
        name: Name of the widget, and of the script's option.
        help: Help text.
        default: Value if nothing else is given.
    """

    name: str
    help: str
    default: str = ""


LAKE = Parameter("lake", "the lake: a folder, or s3://bucket/prefix", DEMO_LAKE)
BROKER = Parameter("broker", "only these stores, separated by commas")
FROM = Parameter("from", "from this time on: 2026-11-20T14:00, 2026-11-20, or -2h")
TO = Parameter("to", "before this time")
"""Parameters that several notebooks share."""


@dataclass
class Notebook:
    """A running notebook.

    Attributes:
        values: The parameters as texts; empty if not given.
        names: The notebook's own namespace, with `dbutils`, `display` and others, if they exist.
    """

    values: Mapping[str, str]
    names: Mapping[str, Any]

    @property
    def lake(self) -> Lake:
        """Return the lake that the parameters name.

        Raises:
            LakeError: The path cannot be that of a lake.
        """
        if not self.values["lake"]:
            raise UsageError("lake: expected the folder of a lake, or s3://bucket/prefix, found nothing")
        return Lake(self.values["lake"])

    def time_parameter(self, name: str) -> datetime.datetime | None:
        """Return a parameter as a time; None if it is not given.

        Raises:
            UsageError: The value is not a time.
        """
        return self._parse_parameter(name, parse_time)

    def duration_parameter(self, name: str) -> datetime.timedelta | None:
        """Return a parameter as a duration; None if it is not given.

        Raises:
            UsageError: The value is not a duration.
        """
        return self._parse_parameter(name, parse_duration)

    def number_parameter(self, name: str) -> float | None:
        """Return a parameter as a positive number; None if it is not given.

        Raises:
            UsageError: The value is not a positive number.
        """
        return self._parse_parameter(name, _parse_positive)

    def list_parameter(self, name: str) -> list[str]:
        """Return a parameter's values, which are separated by commas."""
        return [text for part in self.values[name].split(",") if (text := part.strip())]

    def _parse_parameter(self, name: str, parse: Callable[[str], T]) -> T | None:
        text = self.values[name].strip()
        try:
            return parse(text) if text else None
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{name}: {error}") from None

    def say(self, *sentences: str) -> None:
        """Print each sentence on a line of its own."""
        for sentence in sentences:
            print(printable(sentence))

    def show(self, *sections: Section) -> None:
        """Show sections of a report: sentences, tables and pictures, each section in this order."""
        for section in sections:
            for block in section.blocks:
                if isinstance(block, Table):
                    self._show_table(block)
                elif not isinstance(block, LineChart | HeatMap | BarChart | Html):
                    self.say(*block_lines([block]))
            self._show_pictures(section)

    def _show_table(self, table: Table) -> None:
        """Show a table, or a sentence if it has no rows."""
        if not table.rows:
            self.say(f"{table.caption}: none")
            return
        more = f" (the first {MAX_ROWS:,} of {len(table.rows):,})" if len(table.rows) > MAX_ROWS else ""
        self.say("", f"{table.caption}{more}")
        display = self._find_table_display()
        if display is not None:
            import pandas as pd

            places = [place for place in range(len(table.columns)) if any(str(row[place]) for row in table.rows)]
            names = [escape_line(table.columns[place]) for place in places]
            cells = [[escape_line(str(row[place])) for place in places] for row in table.rows[:MAX_ROWS]]
            with pd.option_context("display.html.use_mathjax", False):  # a name like $x$ is not a formula
                display(pd.DataFrame(cells, columns=names))
        else:
            shown = table._replace(rows=table.rows[:MAX_ROWS])
            write_table_block(shown, sys.stdout, is_full=not sys.stdout.isatty())
        if table.rest:
            self.say(table.rest)

    def _show_pictures(self, section: Section) -> None:
        """Show a section's pictures, or write them to the folder `plots`; a script without it shows their numbers."""
        pictures = [block for block in section.blocks if isinstance(block, LineChart | HeatMap | BarChart | Html)]
        if not pictures:
            return
        folder = self.values[PLOTS]
        show_html = None if folder else self._find_html_display()
        if show_html is not None:
            show_html(render_pictures(section.title, pictures))
        elif folder:
            if not Path(folder).is_dir():
                raise UsageError(f"{PLOTS}: expected an existing folder, found {folder!r}")
            with open_atomic(Path(folder) / f"{section.anchor}.html") as file:
                file.write(render_pictures(section.title, pictures).encode("utf-8", "replace"))
        for picture in pictures:
            if isinstance(picture, LineChart) and show_html is None:
                self._show_table(chart_to_table(picture))

    def _find_table_display(self) -> Callable[[object], object] | None:
        """Return the function that shows a table below the notebook's cell; None in a script."""
        if "display" in self.names or "get_ipython" not in self.names:
            return self.names.get("display")
        found: Callable[[object], object] = importlib.import_module("IPython.display").display
        return found

    def _find_html_display(self) -> Callable[[str], object] | None:
        """Return the function that displays HTML below a cell in Databricks or Jupyter; None in a script."""
        if "displayHTML" in self.names:
            show: Callable[[str], object] = self.names["displayHTML"]
            return show
        if "get_ipython" not in self.names:
            return None
        display = importlib.import_module("IPython.display")
        return lambda page: display.display(display.HTML(_wrap_in_iframe(page)))


def _wrap_in_iframe(page: str) -> str:
    """Return a page in an HTML frame, which isolates its styles and scripts from the notebook."""
    frame = tag("iframe", srcdoc=Html(escape(page)), sandbox="allow-scripts", width="100%", height=_FRAME_HEIGHT)
    return tag("div", frame)


def open_notebook(title: str, names: Mapping[str, Any], *parameters: Parameter) -> Notebook:
    """Return a notebook with the values of its parameters.

    Args:
        title: Title of the notebook.
        names: The notebook's own namespace: `globals()`.
        parameters: Its parameters; outside Databricks, `plots` is added.

    Raises:
        UsageError: The folder for pictures cannot be created.
    """
    dbutils = names.get("dbutils")
    if dbutils is not None:
        for one in parameters:
            dbutils.widgets.text(one.name, one.default, f"{one.name}: {one.help}")
        values = {one.name: dbutils.widgets.get(one.name).strip() for one in parameters}
        return Notebook({**values, PLOTS: ""}, names)
    is_script = names.get("__name__") == "__main__" and "get_ipython" not in names
    parser = argparse.ArgumentParser(description=title, allow_abbrev=False)
    for one in (*parameters, Parameter(PLOTS, "write pictures to this folder, and create it if it does not exist")):
        default = os.environ.get(ENVIRONMENT_PREFIX + one.name.upper(), one.default)
        default_text = f" (default: {one.default})" if one.default else ""
        parser.add_argument(
            f"--{one.name}", default=default, metavar="TEXT", help=(one.help + default_text).replace("%", "%%")
        )
    if is_script:
        sys.excepthook = _print_error
    arguments = join_options_and_times(sys.argv[1:], *(f"--{one.name}" for one in parameters)) if is_script else []
    values = vars(parser.parse_args(arguments))
    if values[PLOTS]:
        _create_folder(values[PLOTS])
    return Notebook(values, names)


def _create_folder(folder: str) -> None:
    """Create the folder for charts before any work begins, so that an error comes early."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{PLOTS}: the folder {folder!r} cannot be created: {error.strerror or error}") from None


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a user's error without a stack trace, or nothing if the reader has gone; the exit code is 1."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes the buffer at exit
    elif isinstance(error, CommitLakeError):
        print(f"{Path(sys.argv[0]).stem}: error: {printable(str(error))}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _parse_positive(text: str) -> float:
    return parse_positive_decimal(text, "positive number", most=1e18)
