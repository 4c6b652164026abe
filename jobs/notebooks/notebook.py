"""Parameters of a notebook, its Spark session, and functions that show DataFrames, pictures and reports.

On Databricks parameters are widgets. In Jupyter they come from environment variables `COMMITLAKE_…` or the defaults. In
a script, `python notebooks/lag_analysis.py --lake /data/lake`, arguments override both. A script writes pictures only
if `--plots FOLDER` is given.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from commitlake.connectors.atomic_files import open_atomic
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.printable import escape_line, escape_unprintable
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.stores import parse_positive_decimal
from commitlake.jobs.arguments.times import join_options_and_times, parse_time
from commitlake.jobs.report.html_elements import tag
from commitlake.jobs.report.html_page import render_pictures
from commitlake.jobs.report.rows_output import Row, rows_of_batches, write_table, write_table_block
from commitlake.jobs.report.text_blocks import block_lines, chart_to_table
from commitlake.schemas.errors import CommitLakeError, UsageError
from commitlake.schemas.report import HeatMap, Html, LineChart, Section, Table
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import EPOCH, FIRST_USUAL_TIME, latest_plausible_time

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame, SparkSession

    from commitlake.pipelines.analysis.lake import AnalysisLake

ENVIRONMENT_PREFIX = "COMMITLAKE_"
DEMO_LAKE = "commitlake-demo/lake"
PLOTS = "plots"
MAX_ROWS = 1000
"""Largest number of rows shown of a table."""
_FRAME_HEIGHT = 640
"""Height of the frame with pictures in Jupyter, in pixels; what is below is scrolled to."""
_MINUTE, _DAY = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a notebook, with its default and a description.

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
GROUP = Parameter("group", "only these groups, separated by commas")
TOPIC = Parameter("topic", "only these topics, separated by commas")
FROM = Parameter("from", "from this time on: 2026-11-20T14:00, 2026-11-20, or -2h")
TO = Parameter("to", "before this time")
"""Parameters that several notebooks share."""


@dataclass
class Notebook:
    """Running notebook: the values of its parameters, and functions that show results below its cells.

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
            UsageError: None is named.
        """
        return Lake(self._lake_text)

    @property
    def lake_location(self) -> str:
        """Return the lake's location for `commitlake.open`; with a given Spark session, the parameter's own text.

        Raises:
            LakeError: The path cannot be that of a lake.
            UsageError: None is named.
        """
        return self.lake.root if self.names.get("spark") is None else self._lake_text

    @property
    def spark(self) -> SparkSession:
        """Return the notebook's Spark session; if there is none, start one on this machine."""
        given: SparkSession | None = self.names.get("spark")
        if given is not None:
            return given
        from commitlake.connectors.spark.session import get_session

        return get_session("notebook", self.lake.s3)

    @property
    def _lake_text(self) -> str:
        if not self.values["lake"]:
            raise UsageError("lake: expected the folder of a lake, or s3://bucket/prefix, found nothing")
        return self.values["lake"]

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
        return self._parse_parameter(name, _parse_positive_number)

    def list_parameter(self, name: str) -> list[str]:
        """Return a parameter's values, which are separated by commas."""
        return [text for part in self.values[name].split(",") if (text := part.strip())]

    def time_range(self) -> tuple[datetime.datetime, datetime.datetime]:
        """Return the times of the parameters `from` and `to`; a missing one is the earliest or latest possible time.

        Raises:
            UsageError: A value is not a time.
        """
        start, end = self.time_parameter("from"), self.time_parameter("to")
        return start or FIRST_USUAL_TIME, end or latest_plausible_time()

    def time_range_or_last_day(self, lake: AnalysisLake[DataFrame]) -> tuple[datetime.datetime, datetime.datetime]:
        """Return the parameters `from` and `to`; by default they cover the last day with messages.

        Raises:
            UsageError: A value is not a time.
        """
        start, end = self.time_parameter("from"), self.time_parameter("to")
        if end is None:
            from pyspark.sql import functions as F

            minutes = lake.tps(by=[], window="1 minute").select("window_start")
            usual = minutes.where(F.col("window_start").between(FIRST_USUAL_TIME, latest_plausible_time()))
            newest = usual.agg(F.max("window_start")).toArrow()[0][0].as_py()
            end = newest + _MINUTE if newest is not None else EPOCH + _DAY
        return start if start is not None else end - _DAY, end

    def _parse_parameter(self, name: str, parse: Callable[[str], T]) -> T | None:
        text = self.values[name].strip()
        try:
            return parse(text) if text else None
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{name}: {error}") from None

    def print_sentences(self, *sentences: str) -> None:
        """Print each sentence on a line of its own."""
        for sentence in sentences:
            print(escape_unprintable(sentence))

    def display(self, title: str, frame: DataFrame) -> None:
        """Show the first rows of a DataFrame: on Databricks by its own `display`, elsewhere as a table of text."""
        if "dbutils" in self.names:
            self.print_sentences("", title)
            self.names["display"](frame)
            return
        rows = list(rows_of_batches(frame.limit(MAX_ROWS + 1).toArrow().to_batches(), 0))
        self._display_rows(title, rows, [Column(name) for name in frame.columns])

    def plot(self, figure: Figure) -> None:
        """Show a Plotly figure that has a title, without network access; outside notebooks, print its numbers.

        With the parameter `plots`, the figure is written to this folder as an HTML file instead, named by its title.
        """
        title = str(figure.layout.title.text)
        folder = self.values[PLOTS]
        show_html = None if folder else self._find_html_display()
        rows = [] if show_html is not None else list(_figure_rows(figure))
        if rows:
            self._display_rows(title, rows, [Column(name) for name in rows[0]])
        if folder or show_html is not None:
            page = figure.to_html(include_plotlyjs=True, config={"typesetMath": False})  # a name like $x$ is no formula
            self._show_page(re.sub(r"\W+", "-", title.lower()), page)

    def show_sections(self, *sections: Section) -> None:
        """Show sections of a report one after another, each with its sentences first, then tables, then pictures."""
        for section in sections:
            for block in section.blocks:
                if isinstance(block, Table):
                    self._show_table(block)
                elif not isinstance(block, LineChart | HeatMap | Html):
                    self.print_sentences(*block_lines([block]))
            self._show_pictures(section)

    def _show_table(self, table: Table) -> None:
        """Show a table, or a sentence if it has no rows."""
        if not table.rows:
            self.print_sentences(f"{table.caption}: none")
            return
        more = f" (the first {MAX_ROWS:,} of {len(table.rows):,})" if len(table.rows) > MAX_ROWS else ""
        self.print_sentences("", f"{table.caption}{more}")
        display = self._find_table_display()
        if display is None:
            write_table_block(table._replace(rows=table.rows[:MAX_ROWS]), sys.stdout, is_full=not sys.stdout.isatty())
        else:
            places = [place for place in range(len(table.columns)) if any(str(row[place]) for row in table.rows)]
            cells = [[str(row[place]) for place in places] for row in table.rows[:MAX_ROWS]]
            _display_cells(display, [table.columns[place] for place in places], cells)
        if table.rest:
            self.print_sentences(table.rest)

    def _display_rows(self, title: str, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Show at most `MAX_ROWS` of the rows with a title, or a sentence if there are none."""
        if not rows:
            self.print_sentences("", f"{title}: none")
            return
        self.print_sentences("", f"{title} (the first {MAX_ROWS:,})" if len(rows) > MAX_ROWS else title)
        self._write_rows(rows[:MAX_ROWS], columns)

    def _write_rows(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Show rows as a table below a notebook's cell, or print them."""
        display = self._find_table_display()
        if display is None:
            write_table(rows, columns, sys.stdout, is_full=not sys.stdout.isatty())
            return
        cells = [["" if row[column.key] is None else str(row[column.key]) for column in columns] for row in rows]
        _display_cells(display, columns, cells)

    def _show_pictures(self, section: Section) -> None:
        """Show a section's pictures, or write them to the folder `plots`; without either, print the charts' numbers."""
        pictures = [block for block in section.blocks if isinstance(block, LineChart | HeatMap | Html)]
        if not pictures:
            return
        folder = self.values[PLOTS]
        is_in_cell = not folder and self._find_html_display() is not None
        if folder or is_in_cell:
            self._show_page(section.anchor, render_pictures(section.title, pictures))
        for picture in pictures:
            if isinstance(picture, LineChart) and not is_in_cell:
                self._show_table(chart_to_table(picture))

    def _show_page(self, name: str, page: str) -> None:
        """Write a page to the folder `plots`, or show it below a notebook's cell."""
        folder = self.values[PLOTS]
        if not folder:
            show_html = self._find_html_display()
            assert show_html is not None
            show_html(page)
            return
        if not Path(folder).is_dir():
            raise UsageError(f"{PLOTS}: expected an existing folder, found {folder!r}")
        with open_atomic(Path(folder) / f"{name}.html") as file:
            file.write(page.encode("utf-8", "replace"))

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


def flow_figure(hops: pd.DataFrame, title: str) -> Figure:
    """Return a diagram of topics in which the width of each link shows the number of hops between two topics.

    Args:
        hops: The columns `source`, `target` and `hops`, as of `AnalysisLake.topic_flow`.
        title: Title of the figure.
    """
    import plotly.graph_objects as go

    topics = sorted({*hops["source"], *hops["target"]})
    ends = {end: [topics.index(topic) for topic in hops[end]] for end in ("source", "target")}
    flow = go.Sankey(node={"label": topics}, link={**ends, "value": list(hops["hops"])})
    return go.Figure(flow, {"title": {"text": title}})


def _figure_rows(figure: Figure) -> Iterator[Row]:
    """Yield a row for each point of a figure with two axes; the titles of the axes are the column names."""
    across, up = (str(axis.title.text) for axis in (figure.layout.xaxis, figure.layout.yaxis))
    for trace in figure.data:
        if "x" in trace and "y" in trace and trace.x is not None and trace.y is not None:
            series = {"series": trace.name} if trace.name else {}
            yield from ({across: _axis_value_text(x), **series, up: y} for x, y in zip(trace.x, trace.y, strict=True))


def _axis_value_text(value: Any) -> str:
    """Return the text of a value on a figure's axis; times are shown to the second."""
    return (
        value.astype("datetime64[s]").item().isoformat()
        if hasattr(value, "astype") and value.dtype.kind == "M"
        else str(value)
    )


def _display_cells(display: Callable[[object], object], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Show a table of texts below a notebook's cell."""
    import pandas as pd

    cells = [[escape_line(text) for text in row] for row in rows]
    with pd.option_context("display.html.use_mathjax", False):  # a name like $x$ is not a formula
        display(pd.DataFrame(cells, columns=[escape_line(column) for column in columns]))


def _wrap_in_iframe(page: str) -> str:
    """Return a page in an HTML frame, which isolates its styles and scripts from the notebook."""
    frame = tag("iframe", srcdoc=Html(escape(page)), sandbox="allow-scripts", width="100%", height=_FRAME_HEIGHT)
    return tag("div", frame)


def open_notebook(title: str, namespace: Mapping[str, Any], *parameters: Parameter) -> Notebook:
    """Return a notebook with the values of its parameters.

    Args:
        title: Title of the notebook.
        namespace: The notebook's own namespace: `globals()`.
        parameters: Its parameters; outside Databricks, `plots` is added.

    Raises:
        UsageError: The folder for pictures cannot be created.
    """
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        for one in parameters:
            dbutils.widgets.text(one.name, one.default, f"{one.name}: {one.help}")
        values = {one.name: dbutils.widgets.get(one.name).strip() for one in parameters}
        return Notebook({**values, PLOTS: ""}, namespace)
    is_script = namespace.get("__name__") == "__main__" and "get_ipython" not in namespace
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
        _create_plots_folder(values[PLOTS])
    return Notebook(values, namespace)


def _create_plots_folder(folder: str) -> None:
    """Create the folder for charts before any work begins, so that an error comes early."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{PLOTS}: the folder {folder!r} cannot be created: {error.strerror or error}") from None


def _print_error(error_type: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print a CommitLake error without a stack trace, and nothing if the reader of the output has gone."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes the buffer at exit
    elif isinstance(error, CommitLakeError):
        print(f"{Path(sys.argv[0]).stem}: error: {escape_unprintable(str(error))}", file=sys.stderr)
    else:
        sys.__excepthook__(error_type, error, traceback)


def _parse_positive_number(text: str) -> float:
    return parse_positive_decimal(text, "positive number", maximum=1e18)
