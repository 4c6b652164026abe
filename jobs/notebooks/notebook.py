"""Parameters of a notebook, and functions that show its tables, pictures and words.

On Databricks parameters are widgets. In Jupyter they come from environment variables `COMMITLAKE_…` or the defaults. In
a script, `python notebooks/lag_analysis.py --lake /data/lake`, arguments override both. A script writes pictures only
if `--plots FOLDER` is given.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.printable import printable, printable_line
from commitlake.connectors.whole_files import write_whole
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.rows_output import write_table
from commitlake.jobs.cli.store_arguments import positive_decimal
from commitlake.jobs.cli.times import join_times, parse_time
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.times import plain_text

ENVIRONMENT_PREFIX = "COMMITLAKE_"
DEMO_LAKE = "commitlake-demo/lake"
PLOTS = "plots"
MAX_ROWS = 1000
"""Largest number of rows shown of a table."""
_NO_LIBRARY = "pictures need matplotlib, which is not installed: pip install 'commitlake[notebooks]'"
T = TypeVar("T")


class NotebookError(CommitLakeError):
    """An invalid parameter or a missing library; the message is for the user."""

    exit_code = ExitCode.USAGE


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
    _has_said: bool = field(default=False, init=False)

    @property
    def lake(self) -> Lake:
        """Return the lake.

        Raises:
            LakeError: The path cannot be that of a lake.
        """
        if not self.values["lake"]:
            raise NotebookError("lake: expected the folder of a lake, or s3://bucket/prefix, found nothing")
        return Lake(self.values["lake"])

    def time(self, name: str) -> datetime.datetime | None:
        """Return a parameter as a time; None if it is not given.

        Raises:
            NotebookError: The value is not a time.
        """
        return self._parsed(name, parse_time)

    def length(self, name: str) -> datetime.timedelta | None:
        """Return a parameter as a duration; None if it is not given.

        Raises:
            NotebookError: The value is not a duration.
        """
        return self._parsed(name, parse_duration)

    def number(self, name: str) -> float | None:
        """Return a parameter as a positive number; None if it is not given.

        Raises:
            NotebookError: The value is not a positive number.
        """
        return self._parsed(name, _positive)

    def texts(self, name: str) -> list[str]:
        """Return a parameter's values, which are separated by commas."""
        return [text for part in self.values[name].split(",") if (text := part.strip())]

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        text = self.values[name].strip()
        try:
            return parse(text) if text else None
        except argparse.ArgumentTypeError as error:
            raise NotebookError(f"{name}: {error}") from None

    def say(self, *sentences: str) -> None:
        """Print sentences, each on a line."""
        for sentence in sentences:
            print(printable(sentence))

    def show(self, title: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Show a table, or a sentence if it has no rows."""
        found = list(rows)
        if not found:
            self.say(f"{title}: none")
            return
        more = f" (the first {MAX_ROWS:,} of {len(found):,})" if len(found) > MAX_ROWS else ""
        shown = [{printable_line(name): _plain(value) for name, value in row.items()} for row in found[:MAX_ROWS]]
        self.say("", f"{title}{more}")
        display = self._display()
        if display is not None:
            import pandas as pd

            with pd.option_context("display.html.use_mathjax", False):  # a name like $x$ is not a formula
                display(pd.DataFrame(shown))
        else:
            write_table(shown, list(shown[0]), sys.stdout, is_full=not sys.stdout.isatty())

    def draw(self, name: str, draw: Callable[[], bytes]) -> None:
        """Show a picture, or write it to the folder `plots`; a script without that folder does neither.

        Args:
            name: Name of the file, without its suffix.
            draw: Function that returns the picture as PNG; called only if the picture is shown.

        Raises:
            NotebookError: `plots` is given but is not a folder, or matplotlib is missing.
        """
        folder = self.values[PLOTS]
        display_image = None if folder else self._display_image()
        if not folder and display_image is None:
            return
        if importlib.util.find_spec("matplotlib") is None:
            if folder:
                raise NotebookError(f"{PLOTS} {folder}: {_NO_LIBRARY}")
            if not self._has_said:
                self.say(_NO_LIBRARY)
                self._has_said = True
            return
        if display_image is not None:
            display_image(draw())
            return
        if not Path(folder).is_dir():
            raise NotebookError(f"{PLOTS}: expected an existing folder, found {folder!r}")
        with write_whole(Path(folder) / f"{name}.png") as file:
            file.write(draw())

    def _display(self) -> Callable[[object], object] | None:
        """Return the function that shows a table below the notebook's cell; None in a script."""
        if "display" in self.names or "get_ipython" not in self.names:
            return self.names.get("display")
        found: Callable[[object], object] = importlib.import_module("IPython.display").display
        return found

    def _display_image(self) -> Callable[[bytes], object] | None:
        """Return the function that shows a PNG below the notebook's cell; None in a script."""
        if "get_ipython" not in self.names:
            return None
        display = importlib.import_module("IPython.display")
        return lambda png: display.display(display.Image(data=png))


def open_notebook(title: str, names: Mapping[str, Any], *parameters: Parameter) -> Notebook:
    """Return a notebook with the values of its parameters.

    Args:
        title: Title of the notebook.
        names: The notebook's own namespace: `globals()`.
        parameters: Its parameters; outside Databricks, `plots` is added.

    Raises:
        NotebookError: The folder for pictures cannot be created.
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
    arguments = join_times(sys.argv[1:], *(f"--{one.name}" for one in parameters)) if is_script else []
    values = vars(parser.parse_args(arguments))
    if values[PLOTS]:
        _create_folder(values[PLOTS])
    return Notebook(values, names)


def _create_folder(folder: str) -> None:
    """Create the folder for pictures, before anything is read."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotebookError(f"{PLOTS}: the folder {folder!r} cannot be created: {error.strerror or error}") from None


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a user's error without a stack trace, or nothing if the reader has gone; the exit code is 1."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes the buffer at exit
    elif isinstance(error, CommitLakeError):
        print(f"{Path(sys.argv[0]).stem}: error: {printable(str(error))}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _positive(text: str) -> float:
    return positive_decimal(text, "positive number", most=1e18)


def _plain(value: Any) -> Any:
    """Return a value for a table: text with control characters escaped, times in UTC."""
    if isinstance(value, datetime.datetime):
        return plain_text(value)
    if isinstance(value, float):
        return round(value, 3)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        value = "; ".join(map(str, value))
    return printable_line(str(value))
