"""Columns of the tables of a `Report`, and of rows that a command prints.

They are a module beneath `schemas.report`, because a command that only prints rows starts faster without the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class Column(str):
    """Title of a table column, with hints for the layout of the column.

    Attributes:
        key: key of the column's values in a row that is a mapping; by default the title.
        spare: 0 if the column is always shown. If there is too little space, the other columns are left out, those with
            the largest numbers first.
        is_number: True if cells are aligned right, and sorted by the cells' order, the largest first.
        is_ranked: True if cells are texts that are sorted by the cells' order, the largest first.
        is_whole: True if the text must not be shortened, such as an id.
        is_notes: True if the cells contain sentences. Each different sentence is listed once, below the table.
        can_sort: True if rows of a page can be sorted by this column.
        text: function that formats a value for people; output for programs has the value itself.
    """

    key: str
    spare: int
    is_number: bool
    is_ranked: bool
    is_whole: bool
    is_notes: bool
    can_sort: bool
    text: Callable[[Any], str] | None

    def __new__(
        cls,
        title: str,
        spare: int = 0,
        *,
        key: str = "",
        is_number: bool = False,
        is_ranked: bool = False,
        is_whole: bool = False,
        is_notes: bool = False,
        can_sort: bool = True,
        text: Callable[[Any], str] | None = None,
    ) -> Self:
        """Create a column's title with hints for the layout of the column."""
        column = super().__new__(cls, title)
        column.key, column.spare, column.is_number, column.is_ranked = key or title, spare, is_number, is_ranked
        column.is_whole, column.is_notes, column.can_sort, column.text = is_whole, is_notes, can_sort, text
        return column
