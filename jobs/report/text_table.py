"""Layout of tables as text lines that fit the width of a terminal.

A row is a line. If a table is too wide, columns that a command declares as spare are left out, the least important
first, and texts are shortened; numbers and times never are. If even that is too wide, each row becomes a block with a
line for each column.

    group     topic   messages  notes
    ─────────────────────────────────
    billing   orders     1,203      1
    shipping  orders         0

    1  no committed offset: counted from the queue's first message

This module does not import rich.console, which takes longer than many queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size  # do not import rich.console

if TYPE_CHECKING:
    from commitlake.schemas.report_columns import Column

_BETWEEN = "  "
_CUT = "…"
_LEAST = 8
"""Smallest width of a shortened text."""
_COMFORTABLE, _COMFORTABLE_SPARE = 32, 20
"""Widths of texts, in needed and in spare columns, that are not shortened further to make room for a spare column."""
_MAX_FIXED = 40
"""Largest width of a column of numbers or times that is never shortened."""
_WORD = re.compile(r"(?<!\S)'[^'\n]+'(?!\w)[^\s\w]?|\S+")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?")


@dataclass(slots=True)
class TextTable:
    """Table to be printed as text.

    Args:
        columns: the columns.
        rows: printable cells without line breaks, one for each column.
        width: number of columns of the terminal; None for no limit.
        is_full: true to show all columns and texts, in blocks if they do not fit.

    Attributes:
        titles: lines with the names of the columns, and a rule; empty if rows are blocks.
        left_out: columns with a text that are not shown.
        shortened: number of shortened texts.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    width: int | None
    is_full: bool = False
    titles: list[str] = field(default_factory=list, init=False)
    left_out: list[Column] = field(default_factory=list, init=False)
    shortened: int = field(default=0, init=False)
    _natural: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Measure the widths of all cells, from which the widths of columns are chosen."""
        self._natural = [max(map(_cell_width, cells), default=0) for cells in zip(*self.rows, strict=True)]

    def body_lines(self) -> Iterator[str]:
        """Yield the lines below the titles. Once the first one is yielded, `titles` and the counts are complete."""
        widths, titles = self._choose_widths_and_titles()
        if widths is None:
            self.left_out.clear()
            yield from self._stacked_lines()
            return
        shown = [number for number, width in enumerate(widths) if width is not None]
        for line in zip(*(titles[number] for number in shown), strict=True):
            if any(line):
                self.titles.append(self._render_row(line, shown, widths))
        total = sum(widths[number] or 0 for number in shown) + len(_BETWEEN) * (len(shown) - 1)
        self.titles.append("─" * total)
        for row in self.rows:
            yield self._render_row([self._shorten_cell(row[number], widths[number]) for number in shown], shown, widths)

    def _render_row(self, cells: Sequence[str], column_numbers: Sequence[int], widths: Sequence[int | None]) -> str:
        parts = []
        for cell, number in zip(cells, column_numbers, strict=True):
            padding = " " * ((widths[number] or 0) - _cell_width(cell))
            parts.append(padding + cell if self.columns[number].is_number else cell + padding)
        return _BETWEEN.join(parts).rstrip()

    def _shorten_cell(self, text: str, width: int | None) -> str:
        if width is None or _cell_width(text) <= width:
            return text
        self.shortened += 1
        return shorten_text(text, width)

    def _choose_widths_and_titles(self) -> tuple[list[int | None] | None, list[list[str]]]:
        """Choose column widths (None for a hidden column; no list for block layout), and titles in one or two lines."""
        whole = [[str(column)] for column in self.columns]
        widths: list[int | None] = [max(_cell_width(t[0]), n) for t, n in zip(whole, self._natural, strict=True)]
        if self._row_fits(widths):
            return widths, whole
        folded = [_fold_title(column, n) for column, n in zip(self.columns, self._natural, strict=True)]
        wide = [max(*map(_cell_width, t), n) for t, n in zip(folded, self._natural, strict=True)]
        if self._row_fits(wide):
            return list(wide), folded
        return (None if self.is_full else self._reduce_widths(wide, [max(map(_cell_width, t)) for t in folded])), folded

    def _row_fits(self, widths: Sequence[int | None]) -> bool:
        shown = [width for width in widths if width is not None]
        return self.width is None or sum(shown) + len(_BETWEEN) * (len(shown) - 1) <= self.width

    def _reduce_widths(self, full_widths: Sequence[int], title_widths: Sequence[int]) -> list[int | None] | None:
        """Shrink and hide columns until a row fits; return None if that is impossible."""
        least, comfortable = list(full_widths), list(full_widths)
        for number in range(len(full_widths)):
            if not self._is_fixed_column(number):
                least[number] = max(title_widths[number], min(full_widths[number], _LEAST))
                most = _COMFORTABLE_SPARE if self.columns[number].spare else _COMFORTABLE
                comfortable[number] = max(title_widths[number], min(full_widths[number], most))
        needed = [number for number, column in enumerate(self.columns) if not column.spare]
        spare = sorted(
            (number for number, column in enumerate(self.columns) if column.spare and self._natural[number]),
            key=lambda number: (self._is_empty_column(number), self.columns[number].spare),
        )
        if not needed:  # a table has at least one column
            needed = [spare.pop(0) if spare else 0]
        widths: list[int | None] = [None] * len(full_widths)
        for number in needed:
            widths[number] = comfortable[number]
        while not self._row_fits(widths):
            excess = {number: comfortable[number] - least[number] for number in needed}
            widest = max(needed, key=lambda number: (excess[number] > 0, comfortable[number]))
            if excess[widest] <= 0:
                return None
            comfortable[widest] -= 1
            widths[widest] = comfortable[widest]
        for number in spare:
            widths[number] = comfortable[number]
            if not self._row_fits(widths):
                widths[number] = None
        self.left_out = [
            column
            for number, column in enumerate(self.columns)
            if widths[number] is None and any(row[number] for row in self.rows)
        ]
        self._widen_columns(widths, full_widths)
        return widths

    def _widen_columns(self, widths: list[int | None], full_widths: Sequence[int]) -> None:
        """Give the remaining space to shortened columns, first to those that need the least."""
        shown = {number: width for number, width in enumerate(widths) if width is not None}
        room = (self.width or 0) - sum(shown.values()) - len(_BETWEEN) * (len(shown) - 1)
        for number in sorted(shown, key=lambda number: full_widths[number] - shown[number]):
            more = min(room, full_widths[number] - shown[number])
            widths[number] = shown[number] + more
            room -= more

    def _is_fixed_column(self, column_number: int) -> bool:
        if self._natural[column_number] > _MAX_FIXED:
            return False
        column = self.columns[column_number]
        return (
            column.is_number
            or column.is_whole
            or all(not row[column_number] or _TIME.fullmatch(row[column_number]) for row in self.rows)
        )

    def _is_empty_column(self, column_number: int) -> bool:
        return all(row[column_number] in ("", "0", "0.0") for row in self.rows)

    def _stacked_lines(self) -> Iterator[str]:
        """Yield the table in block layout: a line per cell, with the column's name; with `is_full`, long cells wrap."""
        names = max(map(_cell_width, self.columns))
        room = max((self.width or 0) - names - len(_BETWEEN), _LEAST)
        for place, row in enumerate(self.rows):
            if place:
                yield ""
            for column, cell in zip(self.columns, row, strict=True):
                name = column + " " * (names - _cell_width(column)) + _BETWEEN
                if not cell:
                    continue
                if self.is_full:
                    yield from wrap_text(cell, self.width or 0, name, " " * _cell_width(name))
                elif _cell_width(cell) > room and _TIME.fullmatch(cell):
                    yield column
                    yield _BETWEEN + cell
                else:
                    yield name + self._shorten_cell(cell, room)


def shorten_text(text: str, width: int) -> str:
    """Shorten a text to a width, with an ellipsis for the part that is left out.

    A sentence loses its last words. A name, or a path with a place in the file, loses its middle, because such texts
    often differ at the end.

    >>> shorten_text("no committed offset: counted", 14)
    'no committed…'
    >>> shorten_text("C0A8000100002A9F0000000000001000", 12)
    'C0A80…001000'
    """
    if width < _LEAST and _cell_width(text) > width:
        return set_cell_size(text, max(0, width - 1)).rstrip() + _CUT
    head = set_cell_size(text, width - 1)
    if _cell_width(text.partition(" ")[0]) <= width // 2:
        kept = head if text[len(head) : len(head) + 1] in " ,;:" else head.rpartition(" ")[0]
        if _cell_width(kept) >= width // 2:
            return kept.rstrip(" ,;:") + _CUT
        return head.rstrip() + _CUT
    start = set_cell_size(text, width - width // 2).rstrip()
    return (
        start[:-1].rstrip() + _CUT + _end_of_text(text, width // 2) if _cell_width(start) > 1 else head.rstrip() + _CUT
    )


def _end_of_text(text: str, width: int) -> str:
    """Return the last part of a text that fits a width."""
    tail = text[-width:] if width else ""
    while _cell_width(tail) > width:
        tail = tail[1:]
    return tail


def wrap_text(
    text: str, width: int, first_prefix: str = "", other_prefix: str = "", *, breaks_words: bool = True
) -> Iterator[str]:
    """Wrap a text between words, and yield its lines.

    Args:
        width: number of columns.
        first_prefix: text before the first line.
        other_prefix: text before the other lines.
        breaks_words: true to break words that are wider than a line.
    """
    line, before = "", first_prefix
    room, later = (max(width - _cell_width(part), _LEAST) for part in (first_prefix, other_prefix))
    for word in _split_words(text, min(room, later)):
        if not line or _cell_width(line) + 1 + _cell_width(word) <= room:
            line = f"{line} {word}" if line else word
        else:
            yield before + line
            line, before, room = word, other_prefix, later
        while breaks_words and _cell_width(line) > room:
            piece, *_ = chop_cells(line, room)
            yield before + piece
            line, before, room = line[len(piece) :], other_prefix, later
    yield before + line


def _split_words(text: str, line_width: int) -> Iterator[str]:
    """Yield the words of a text; a command in quotes is one word if it fits into a line, so that it can be copied."""
    for found in _WORD.finditer(text):
        word = found[0]
        yield from [word] if _cell_width(word) <= line_width else word.split(" ")


def wrap_lines(text: str, width: int) -> str:
    """Wrap the lines of a text between words, and indent continued lines.

    A wider word, such as a path, is a longer line, so that it can be copied.
    """
    lines = text.split("\n")
    if all(len(line) <= width and _cell_width(line) <= width for line in lines):
        return text
    folded: list[str] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip(" "))]
        if _cell_width(line) > width:
            folded += wrap_text(line[len(indent) :], width, indent, indent + _BETWEEN, breaks_words=False)
        else:
            folded.append(line)
    return "\n".join(folded)


def _fold_title(name: str, width: int) -> list[str]:
    """Return a name in two lines, split where that is narrowest, if it is wider than its column and can be split."""
    splits = [place.end() for place in re.finditer(r"_(?=[^_])| (?=[^ ])", name)]
    if not splits or len(name) <= width:
        return ["", name]
    best = min(splits, key=lambda place: max(place, len(name) - place))
    return [name[:best].rstrip(), name[best:]]


def _cell_width(cell: str) -> int:
    return len(cell) if cell.isascii() else cell_len(cell)
