"""Layout of a table as lines of text, with each cell on one line.

Rich lays out tables that must be folded to the width of a terminal. Importing it takes longer than many queries, so
this module lays out tables that fit, and tables for files and pipes. Both look the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len  # width of a text on a terminal; does not import rich.console

_BETWEEN = "   "


class TextTable:
    """The cells of a table, and the width of each column.

    Args:
        names: displayed names of the columns.
        rows: cells, one for each column.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._lines = [names, *rows]
        self._lengths = [[_length(cell) for cell in line] for line in self._lines]
        self._widths = [max(lengths) for lengths in zip(*self._lengths, strict=True)]
        self.width = sum(self._widths) + len(_BETWEEN) * max(0, len(names) - 1)

    def lines(self) -> Iterator[str]:
        """Yield the names, a rule, and the rows; each padded to the table's width."""
        for number, (cells, lengths) in enumerate(zip(self._lines, self._lengths, strict=True)):
            yield _BETWEEN.join(
                cell + " " * (width - length) for cell, length, width in zip(cells, lengths, self._widths, strict=True)
            )
            if number == 0:
                yield "─" * self.width


def _length(cell: str) -> int:
    return len(cell) if cell.isascii() else cell_len(cell)
