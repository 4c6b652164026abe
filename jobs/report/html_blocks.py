"""The blocks of a report as HTML: figures, notices, commands to copy, tables, charts.

Rows of tables are sorted and searched by the page's script; without it they have the given order. Tables become cards
on a phone, so their elements have explicit roles: browsers drop the roles of elements whose display changes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from commitlake.connectors.printable import escape_line
from commitlake.jobs.report.charts import heat_map_html, line_chart_html, sparkline_html
from commitlake.jobs.report.html_elements import badge_html, inline_html, join_html, tag
from commitlake.schemas.report import (
    AdviceBlock,
    Block,
    Cell,
    CollapsedContent,
    ExampleList,
    HeatMap,
    Html,
    KeyFigures,
    LineChart,
    Notice,
    Paragraph,
    Sparkline,
    Table,
)
from commitlake.schemas.report_columns import Column

ROWS_SHOWN = 25
"""Number of rows shown at first; a button shows the others."""
MAX_TEXT = 240
"""Largest number of characters shown of a command in a sentence."""
MAX_SENTENCE = 1000
"""Largest number of characters shown of a sentence."""
_QUOTED = re.compile(r"'((?:commitlake|curl) [^']+)'")


def blocks_html(blocks: Iterable[Block]) -> Html:
    """Return blocks of a report as HTML."""
    return join_html(map(block_html, blocks))


def block_html(block: Block) -> Html:
    """Return one block of a report as HTML."""
    match block:
        case Html():
            found = block
        case Paragraph():
            found = paragraph_html(inline_html(block.text), is_quiet=block.is_quiet)
        case KeyFigures():
            pairs = (tag("div", tag("dt", label), tag("dd", value)) for label, value in block.figures.items())
            found = tag("dl", *pairs, class_="tiles")
        case Notice():
            head = tag("h3", badge_html(block.kind, block.word), " ", tag("span", inline_html(block.title)))
            found = tag("article", head, blocks_html(block.blocks), class_=f"notice {block.kind}")
        case AdviceBlock():
            found = join_html(_advice_html(block))
        case CollapsedContent():
            found = tag("details", tag("summary", block.summary), blocks_html(block.blocks))
        case ExampleList():
            found = tag("ol", *map(_example_html, block.examples), class_="examples")
        case Table():
            found = table_html(block)
        case LineChart():
            found = line_chart_html(block)
        case HeatMap():
            found = heat_map_html(block)
    return found


def paragraph_html(*content: str, is_quiet: bool = False) -> Html:
    """Return a paragraph as HTML; with `is_quiet`, its text is smaller and paler."""
    return tag("p", *content, class_="quiet" if is_quiet else None)


def _example_html(fields: Mapping[str, str]) -> Html:
    pairs = (tag("div", tag("dt", title), tag("dd", tag("bdi", value))) for title, value in fields.items() if value)
    return tag("li", tag("dl", *pairs))


def _advice_html(block: AdviceBlock) -> Iterator[Html]:
    """Yield HTML for the sentence of an advice, and for its commands to copy."""
    if not block.advice.parts:
        return
    copied = block.advice.commands if block.commands is None else block.commands
    parts: list[str] = []
    for part in block.advice.parts:
        if isinstance(part, str):
            texts = _QUOTED.split(escape_and_shorten(part, MAX_SENTENCE))
            parts += [tag("code", each) if at % 2 else each for at, each in enumerate(texts)]
        else:  # the whole command is below
            parts.append(
                tag("code", " ".join(part.words[:2]) if part in copied else escape_and_shorten(part.to_shell_line))
            )
    yield paragraph_html(inline_html(block.before), *parts, ".")
    yield from (command_html(each.words) for each in copied)


def escape_and_shorten(value: str, max_length: int = MAX_TEXT) -> str:
    """Escape control characters in a text, and limit its length."""
    shown = escape_line(value)
    return shown if len(shown) <= max_length else f"{shown[:max_length]}…"


def command_html(words: Iterable[str]) -> Html:
    """Return a command line as HTML, with a button that copies it.

    A word with characters that a page shows as escapes (control and bidi characters) would be copied wrongly. The
    command is then replaced by a note.
    """
    given = list(words)
    if any(escape_line(word) != word for word in given):
        return paragraph_html("The command is not shown, because a name in it has control characters.", is_quiet=True)
    line = shlex.join(given)
    button = tag("button", "Copy", type="button", class_="copy script-only", aria_label=f"Copy the command {line}")
    parts: list[Html | str] = []
    for word in given:
        quoted = shlex.quote(word)
        # A browser would break a line after the hyphens of an option.
        parts += [*([" "] if parts else []), tag("span", quoted, class_="option") if word.startswith("-") else quoted]
    return tag("div", tag("pre", tag("code", *parts), tabindex=0), button, class_="command")


def table_html(block: Table) -> Html:
    """Return a table with search and sort; columns in which all cells are empty are left out."""
    columns, rows = block.columns, block.rows
    places = [
        place for place in range(len(columns)) if not place or not rows or any(row[place].content for row in rows)
    ]
    shown = [columns[place] for place in places]
    heads = [tag("th", column, role="columnheader", scope="col", class_="number" if column.is_number else None,
                 data_sort=_column_sort_order(column))
             for column in shown]  # fmt: skip
    found = tag(
        "table",
        tag("caption", block.caption),
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *(_row_html(shown, [row[place] for place in places]) for row in rows), role="rowgroup"),
        role="table", class_="cards", data_shown=ROWS_SHOWN,
    )  # fmt: skip
    return tag("div", found, tag("p", block.rest, class_="quiet") if block.rest else Html(), class_="table")


def _column_sort_order(column: Column) -> str | None:
    """Return the name of the sort order that the page's script uses for a column; None for none."""
    return ("number" if column.is_number or column.is_ranked else "text") if column.can_sort else None


def _row_html(columns: Sequence[Column], row: Sequence[Cell]) -> Html:
    cells = []
    for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
        cells.append(
            tag(
                "td" if place else "th", tag("span", _cell_html(cell)),
                role="cell" if place else "rowheader", scope=None if place else "row",
                data_label=column, data_order=None if cell.order is None else repr(cell.order),
                class_="number" if column.is_number else None,
            )
        )  # fmt: skip
    return tag("tr", *cells, role="row")


def _cell_html(cell: Cell) -> Html:
    return sparkline_html(cell.content) if isinstance(cell.content, Sparkline) else inline_html(cell.content)
