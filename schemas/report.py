"""An answer: a verdict, figures, tables with typed columns, charts, and advice with commands.

A capability makes a `Report` once, and `jobs.report` renders it: as a page, as text, or as the cells of a notebook.

    Report   a title, a verdict, facts (lake, broker, period), and sections
    Section  an anchor, a title, and blocks
    block    Paragraph, Figures, Notice, AdviceBlock, CollapsedContent, Examples, Table, a chart, or `Html`
    Text     what a paragraph, a title and a cell have: a string, or several parts such as a name and a badge

Texts are as they are in the lake or store. Each renderer escapes them for its own form, in one place.

Most classes are named tuples, which are created faster than dataclasses: each command that prints rows loads them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from commitlake.schemas.errors import ExitCode
from commitlake.schemas.finding_advice import Command, FilledAdvice
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import TimeWindows, format_time

NO_FIGURE = "\N{EN DASH}"
"""Shown in a chart's table if there is no figure."""
MAX_SERIES = 8
"""Largest number of series of a chart that can be told apart."""


class Kind(StrEnum):
    """Severity, with a colour, a sign and a word for its badge."""

    GOOD = "good"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def badge_text(self) -> str:
        """The default text of a badge of this severity."""
        return "Information" if self is Kind.INFO else self.value.capitalize()


class Html(str):
    """Text that is already HTML, such as the diagram of a message's lineage; other outputs than HTML pages omit it."""

    __slots__ = ()


class Name(str):
    """Name from a lake or store, isolated so that right-to-left letters in it do not reorder the text around it."""

    __slots__ = ()


class TimeText(str):
    """A time such as `2026-11-20 14:00`, which may be wrapped to a second line only at its space."""

    __slots__ = ()


class MutedText(str):
    """Text of minor importance, shown in a less prominent colour."""

    __slots__ = ()


class Strong(str):
    """Text that is emphasised."""

    __slots__ = ()


class Sentence(str):
    """Sentence in a table cell that contains names from a lake or store."""

    __slots__ = ()


class Code(str):
    """Text for a program, such as an option."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Badge:
    """A sign and a word in the colour of a severity.

    Attributes:
        kind: the severity.
        word: text of the badge; by default the word of the severity.
    """

    kind: Kind
    word: str = ""

    def __str__(self) -> str:
        return self.word or self.kind.badge_text


class Sparkline(NamedTuple):
    """Sparkline: a small line chart without axes, as in a table cell.

    Attributes:
        label: description of the line, for screen readers.
        values: values at equal distances; None is a gap.
    """

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class StepLink:
    """Link to the details of one event in the report on a message's path through the brokers.

    Attributes:
        number: number of the step.
        title: title of the step.
    """

    number: int
    title: str

    def __str__(self) -> str:
        return f"{self.number}. {self.title}"


Part: TypeAlias = str | Badge | StepLink
Text: TypeAlias = Part | tuple[Part, ...]


def to_plain_text(text: Text) -> str:
    """Return the plain text of a formatted text, without colours and emphasis.

    >>> to_plain_text((Badge(Kind.GOOD), " for ", Name("billing")))
    'Good for billing'
    """
    return "".join(map(str, text)) if isinstance(text, tuple) else str(text)


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        content: text of the cell; or a sparkline, for a cell without text.
        order: sort key; by default the text. A cell with None and no text is last.
        notes: the sentences of a cell in a column of notes, each on its own.
    """

    content: Text | Sparkline
    order: float | None = None
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        return "" if isinstance(self.content, Sparkline) else to_plain_text(self.content)


class Table(NamedTuple):
    """A table with search and sort; columns in which all cells are empty are left out.

    Attributes:
        caption: description of the rows.
        columns: columns; the first one names the row.
        rows: cells by column.
        rest: a sentence about the rows that are not shown.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    rest: str = ""

    @classmethod
    def of(
        cls, caption: str, columns: Sequence[Column], rows: Iterable[Mapping[str, object]], rest_note: str = ""
    ) -> Table:
        """Create a table with the given columns.

        The cells are the values that each row mapping has under the columns' keys.

        Times are shown in UTC, and lists with a `;` between, unless the column says otherwise.
        """
        return cls(
            caption, columns, [[_make_cell(column, row[column.key]) for column in columns] for row in rows], rest_note
        )

    @classmethod
    def of_values(cls, caption: str, rows: Iterable[Mapping[str, object]], rest_note: str = "") -> Table:
        """Create a table from row mappings, with one column for each key of the first row."""
        found = list(rows)
        numbers = {key for row in found for key, value in row.items() if isinstance(value, int | float)}
        columns = [Column(key, is_number=key in numbers) for key in (found[0] if found else ())]
        return cls.of(caption, columns, found, rest_note)


def _make_cell(column: Column, value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("")
    if column.is_notes and isinstance(value, list | tuple):
        return Cell("; ".join(value), notes=value)
    order = value if isinstance(value, int | float) else None
    if isinstance(value, datetime.datetime) and column.is_ranked:
        order = value.timestamp()
    return Cell((column.text or _format_value)(value), order)


def _format_value(value: object) -> Text:
    match value:
        case str() | Badge():
            return value
        case datetime.datetime():
            return format_time(value)
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case int():
            return f"{value:,}"
        case list() | tuple():
            return "; ".join(map(str, value))
    return str(value)


class Paragraph:
    """Paragraph of a report; an unimportant one is shown smaller and paler.

    Attributes:
        text: its parts.
        is_quiet: whether it is quiet.
    """

    __slots__ = ("is_quiet", "text")

    def __init__(self, *text: Part, is_quiet: bool = False) -> None:
        self.text: Text = text
        self.is_quiet = is_quiet


class KeyFigures(NamedTuple):
    """A few figures with labels, shown in large type.

    Attributes:
        figures: figures by label.
    """

    figures: Mapping[str, str]


class AdviceBlock(NamedTuple):
    """Advice in a report: its sentence, and its commands in a form that can be copied.

    Attributes:
        advice: the advice.
        commands: the commands to show for copying; None for all.
        before: text before the sentence.
    """

    advice: FilledAdvice
    commands: Sequence[Command] | None = None
    before: Text = ""


class Notice:
    """A finding or an advice, with a badge and a heading.

    Attributes:
        kind: severity.
        title: the heading.
        blocks: content below the heading.
        word: text of the badge; by default the word of the severity.
    """

    __slots__ = ("blocks", "kind", "title", "word")

    def __init__(self, kind: Kind, title: Text, *blocks: Block, word: str = "") -> None:
        self.kind, self.title, self.blocks, self.word = kind, title, blocks, word


class CollapsedContent:
    """Content that a page hides until its summary is opened.

    Attributes:
        summary: the summary.
        blocks: the content.
    """

    __slots__ = ("blocks", "summary")

    def __init__(self, summary: str, *blocks: Block) -> None:
        self.summary, self.blocks = summary, blocks


class ExampleList(NamedTuple):
    """Numbered list of examples; each is a mapping of field names to texts, and empty fields are not shown.

    Attributes:
        examples: the examples.
    """

    examples: Sequence[Mapping[str, str]]


class MarkKind(StrEnum):
    """Reason for marking a time range in a chart: missing data, partial data, or damage."""

    MISSING = "missing"
    PARTIAL = "partial"
    DAMAGE = "damage"


class Mark(NamedTuple):
    """Time range that is marked in a chart.

    Attributes:
        kind: kind of the mark.
        start: start time.
        end: end time.
        note: a sentence about it.
    """

    kind: MarkKind
    start: datetime.datetime
    end: datetime.datetime
    note: str


class Series(NamedTuple):
    """Series of figures over time, for a line chart or a row of a heat map.

    Attributes:
        name: name of the series; any text.
        values: a figure for each window; None if there is none, which is a gap in the line and never 0.
        last: text beside a row of a heat map, such as the current figure and verdict.
    """

    name: str
    values: Sequence[float | None]
    last: Text = ""


def short_number(value: float) -> str:
    """Format a figure briefly, as a label on an axis.

    >>> [short_number(value) for value in (0, 0.25, 20, 1500, 2_000_000)]
    ['0', '0.25', '20', '1.5k', '2M']
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_whole_number(value: float) -> str:
    """Format a whole number with thousands separators: `1,203`."""
    return f"{value:,.0f}"


class LineChart(NamedTuple):
    """Line chart of one or more series of figures over time.

    Attributes:
        title: title of the chart, with the unit of the figures.
        windows: times of the figures.
        series: the series, at most `MAX_SERIES`.
        number: function that formats a figure in the chart's table.
        marks: marked times.
        axis: function that formats a figure on the axis.
        is_log: whether the scale is logarithmic.
        has_bands: whether the area between each line and the previous one is filled, as for percentiles.
        note: a sentence on how to read the chart.
    """

    title: str
    windows: TimeWindows
    series: Sequence[Series]
    number: Callable[[float], str] = format_whole_number
    marks: Sequence[Mark] = ()
    axis: Callable[[float], str] = short_number
    is_log: bool = False
    has_bands: bool = False
    note: str = ""


class HeatMap(NamedTuple):
    """Heat map: a row of coloured cells over time for each series.

    A colour stands for a power of ten, hatching for no figure.

    Attributes:
        title: title of the chart, with the unit of the figures.
        windows: times of the figures.
        rows: the rows.
        number: function that formats a figure.
        note: a sentence on how to read the chart.
    """

    title: str
    windows: TimeWindows
    rows: Sequence[Series]
    number: Callable[[float], str] = format_whole_number
    note: str = ""


Chart: TypeAlias = LineChart | HeatMap
Block: TypeAlias = Paragraph | KeyFigures | Notice | AdviceBlock | CollapsedContent | ExampleList | Table | Chart | Html


class Verdict(NamedTuple):
    """Result of a report: its severity, one sentence, and an exit code.

    Attributes:
        kind: severity of the verdict.
        sentence: the sentence.
        word: text of the badge; by default the word of the severity.
        exit_code: exit code of a command whose answer is the report.
    """

    kind: Kind
    sentence: str
    word: str = ""
    exit_code: ExitCode = ExitCode.OK


class Section(NamedTuple):
    """A section of a report, with a heading.

    Attributes:
        anchor: id of the section: letters, digits and `-`.
        title: the heading.
        blocks: its content.
    """

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Report:
    """Report with a result, and sections that contain figures, tables, charts and advice.

    Attributes:
        title: subject of the report, such as "Consumer lag".
        verdict: the verdict at the beginning.
        facts: scope of the report: pairs of a label (lake, broker, period) and a value.
        sections: sections of the report.
        job: name of the command that makes the report.
    """

    title: str
    verdict: Verdict
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    job: str = ""

    def find_section(self, anchor: str) -> Section:
        """Return the section with an anchor; an empty section if the report has none with this anchor."""
        found = (section for section in self.sections if section.anchor == anchor)
        return next(found, Section(anchor, anchor.capitalize(), ()))
