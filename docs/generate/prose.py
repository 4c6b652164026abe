"""Turn a docstring of this project into Markdown.

Docstrings hold paragraphs, lists, pipe tables and indented blocks. Paragraphs and lists are Markdown already. In a pipe
table of a docstring, a row whose first cell is empty continues the row before it: Markdown needs one line per row. An
indented block is printed as it is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")  # `||` is an operator of filters
_RULE = re.compile(r"[\s|:-]+")


def markdown_of(docstring: str | None) -> str:
    """Return the Markdown of a docstring."""
    text = inspect.cleandoc(docstring or "")
    blocks = re.split(r"\n{2,}", text)
    return "\n\n".join(_block(block) for block in _joined_code(blocks))


def escaped(text: str) -> str:
    """Escape what Markdown would take for HTML, outside of code spans."""
    parts = _CODE_SPAN.split(text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a pipe in a cell is escaped, and a line break becomes a space."""
    lines = [_row(header), "|" + " --- |" * len(header)]
    return "\n".join([*lines, *(_row([_cell(cell) for cell in row]) for row in rows)])


def _cell(text: str) -> str:
    return escaped(" ".join(text.split())).replace("|", "\\|")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _joined_code(blocks: Sequence[str]) -> Iterator[str]:
    """Join indented blocks that follow each other, so that they become one block of code."""
    pending = ""
    for block in blocks:
        if block.startswith("    "):
            pending = f"{pending}\n\n{block}" if pending else block
            continue
        if pending:
            yield pending
            pending = ""
        yield block
    if pending:
        yield pending


def _block(block: str) -> str:
    if block.startswith("    "):
        code = "\n".join(line.removeprefix("    ") for line in block.splitlines())
        return f"```text\n{code}\n```"
    if block.startswith("|"):
        return _merged_table(block.splitlines())
    return escaped(block)


def _merged_table(lines: Sequence[str]) -> str:
    rows: list[list[str]] = []
    for line in lines:
        cells = [cell.strip() for cell in _PIPE.split(line.strip()[1:-1])]
        if rows and cells[0] == "" and not _RULE.fullmatch(line):
            continued = zip(rows[-1], cells, strict=False)
            rows[-1] = [f"{before} {more}".strip() for before, more in continued]
        else:
            rows.append(cells)
    body = [row for row in rows[1:] if not _RULE.fullmatch("".join(row))]
    return table(rows[0], body)
