"""Text form of report blocks; tables are laid out like printed rows, and charts as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from commitlake.jobs.cli.terminal import print_line, print_text
from commitlake.jobs.report.rows_output import write_table_block
from commitlake.schemas.report import (
    NO_FIGURE,
    AdviceBlock,
    Badge,
    Block,
    Cell,
    CollapsedContent,
    ExampleList,
    KeyFigures,
    Kind,
    LineChart,
    Notice,
    Paragraph,
    Report,
    Table,
    to_plain_text,
)
from commitlake.schemas.report_columns import Column


def print_sections(report: Report, *anchors: str) -> None:
    """Print sections of a report on standard output, with a blank line after each.

    Figures are left out, because tables of the same section have them in each row; so are charts and HTML.
    """
    for anchor in anchors:
        blocks = report.find_section(anchor).blocks
        for block in blocks:
            if isinstance(block, Table):
                write_table_block(block, sys.stdout)
            if not isinstance(block, KeyFigures):
                for line in block_lines([block]):
                    print_text(line)
        if blocks:
            print()


def print_notices(report: Report, anchor: str, *, only_critical: bool) -> None:
    """Print the notices of a section on standard error, or only the critical ones, and the note on those left out."""
    blocks = report.find_section(anchor).blocks
    notices = [block for block in blocks if isinstance(block, Notice)]
    shown = [notice for notice in notices if notice.kind is Kind.CRITICAL or not only_critical]
    for line in block_lines([*shown, *blocks[len(notices) :]] if notices else []):
        print_line(line)


def print_summary(report: Report, *anchors: str) -> None:
    """Print sections and the verdict of a report on standard error; charts and HTML are left out."""
    blocks = [block for anchor in anchors for block in report.find_section(anchor).blocks]
    for block in (*blocks, Paragraph(report.verdict.sentence)):
        if isinstance(block, Table):
            write_table_block(block, sys.stderr)
        for line in block_lines([block]):
            print_line(line)


def block_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks of a report as lines of text; of tables, only the note on further rows, and no charts and HTML."""
    for block in blocks:
        match block:
            case Paragraph():
                yield to_plain_text(block.text)
            case Table() if block.rest:
                yield block.rest
            case KeyFigures():
                yield "; ".join(f"{label}: {figure}" for label, figure in block.figures.items())
            case AdviceBlock() if block.advice.parts:
                yield f"{to_plain_text(block.before)}{block.advice.sentence}."
                yield from (f"  {command.to_shell_line}" for command in block.advice.others)
            case Notice():
                yield f"{Badge(block.kind, block.word)}: {to_plain_text(block.title)}"
                yield from (f"  {line}" for line in block_lines(block.blocks))
            case CollapsedContent():
                yield block.summary
                yield from (f"  {line}" for line in block_lines(block.blocks))
            case ExampleList():
                for example in block.examples:
                    yield "; ".join(f"{name}: {value}" for name, value in example.items() if value)
            case _:
                pass


def chart_to_table(chart: LineChart) -> Table:
    """Return the numbers of a chart as a table, without times at which no series has a value."""
    windows = chart.windows
    rows = [
        [
            Cell(windows.label(at)),
            *(Cell(NO_FIGURE if value is None else chart.number(value), value) for value in values),
        ]
        for at, values in enumerate(zip(*(series.values for series in chart.series), strict=True))
        if any(value is not None for value in values)
    ]
    # A series has any name, also that of another column.
    series = (Column(each.name, key=str(place), is_number=True) for place, each in enumerate(chart.series))
    columns = [Column("from (UTC)", key="from"), *series]
    return Table(chart.title, columns, rows)
