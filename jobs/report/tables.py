"""Tables with search and sort, which become cards on a phone.

Rows are sorted and searched by the page's script; without it they have the given order. If a table has cards, its
elements have explicit roles, because browsers drop the roles of elements whose display changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commitlake.jobs.report.markup import Html, tag

NO_FIGURE = "\N{EN DASH}"
"""Shown in a chart's table if there is no figure."""
ROWS_SHOWN = 25
"""Number of rows shown at first; a button shows the others."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Attributes:
        content: Content of the cell.
        order: Sort key; by default the text. A cell with None and no text is last.
    """

    content: str
    order: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Heading of the column.
        is_number: Whether its cells are aligned to the right and sorted by `Cell.order`, the largest first.
        is_ranked: Whether its cells are texts that are sorted by `Cell.order`, the largest first.
        can_sort: Whether rows can be sorted by this column.
    """

    title: str
    is_number: bool = False
    is_ranked: bool = False
    can_sort: bool = True

    @property
    def sort(self) -> str | None:
        """Return how the page's script sorts by this column; None if it does not."""
        return ("number" if self.is_number or self.is_ranked else "text") if self.can_sort else None


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, rest: str = "") -> Html:
    """Return a table with search and sort; columns in which all cells are empty are left out.

    Args:
        caption: Description of the rows.
        columns: Columns; the first one names the row.
        rows: Cells by column.
        rest: A sentence about rows that are left out.
    """
    places = [
        place for place in range(len(columns)) if not place or not rows or any(row[place].content for row in rows)
    ]
    columns, rows = [columns[place] for place in places], [[row[place] for place in places] for row in rows]
    heads = [tag("th", column.title, role="columnheader", scope="col", class_="number" if column.is_number else None,
                 data_sort=column.sort)
             for column in columns]  # fmt: skip
    lines = [_row(columns, row) for row in rows]
    found = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *lines, role="rowgroup"),
        role="table", class_="cards", data_shown=ROWS_SHOWN,
    )  # fmt: skip
    return tag("div", found, tag("p", rest, class_="quiet") if rest else Html(), class_="table")


def _row(columns: Sequence[Column], row: Sequence[Cell]) -> Html:
    cells = []
    for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
        cells.append(
            tag(
                "td" if place else "th", tag("span", cell.content),
                role="cell" if place else "rowheader", scope=None if place else "row",
                data_label=column.title, data_order=None if cell.order is None else repr(cell.order),
                class_="number" if column.is_number else None,
            )
        )  # fmt: skip
    return tag("tr", *cells, role="row")


def plain_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], places: Sequence[float]) -> Html:
    """Return the numbers of a chart as a table.

    Args:
        caption: Description of the rows.
        heads: Headings; the first column names the row.
        rows: Texts by column.
        places: Position of each row on the chart's axis, 0 to 1.
    """
    lines = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", value) for value in row[1:]), data_x=float(place))
        for row, place in zip(rows, places, strict=True)
    ]
    head = tag("tr", *(tag("th", title, scope="col") for title in heads))
    found = tag("table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", *lines),
                class_="plain")  # fmt: skip
    return tag("div", found, class_="wide", tabindex=0, role="region", aria_label=caption)


def cell_text(value: float | None, number: Callable[[float], str]) -> str:
    """Return a figure's text; `NO_FIGURE` for None."""
    return NO_FIGURE if value is None else number(value)
