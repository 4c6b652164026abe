"""Findings on a page, grouped by kind: the first of each group decoded, and the number of the others.

A log can have a million findings, each with untrusted texts. So a group shows its first examples. Further findings that
its source has kept are folded, as far as the page's size allows; the others are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from commitlake.connectors.printable import printable_line
from commitlake.jobs.report.markup import Html, joined, tag, text
from commitlake.jobs.report.page import Kind, Section
from commitlake.jobs.report.parts import command, folded, notice, paragraph
from commitlake.jobs.report.tables import Cell, Column, table
from commitlake.schemas.advice import NO_ADVICE, Command, FilledAdvice
from commitlake.schemas.counts import count_text

SHOWN_EXAMPLES = 3
"""Number of examples of a group that are shown at once."""
MAX_GROUPS = 100
"""Largest number of groups on a page; further groups are only counted."""
MAX_BYTES = 1 << 20
"""Size of the findings on a page above which no more examples are added."""
MAX_TEXT = 240
"""Largest number of characters shown of a finding's text."""
MAX_SENTENCE = 1000
"""Largest number of characters shown of a group's sentence."""
_ROW_BYTES = 400
"""Size of the HTML of a table row without its texts."""
_ORDER = (Kind.CRITICAL, Kind.WARNING, Kind.INFO, Kind.GOOD)
_QUOTED = re.compile(r"'((?:commitlake|curl) [^']+)'")


@dataclass(frozen=True, slots=True)
class Example:
    """One finding, in words.

    Attributes:
        where: Position of the finding: file, offset, queue.
        found: The actual content.
        expected: The expected content.
        notes: Further details, by name.
    """

    where: str
    found: str
    expected: str
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of the same kind.

    Attributes:
        kind: Severity of the findings.
        title: Title of the group.
        count: Number of findings.
        why: Cause or meaning of the findings, without a full stop.
        advice: Advice on what to do.
        examples: The first findings.
        word: Word for the badge; by default that of the kind.
        counted: The count in words, if it is not the number of findings.
        code: Name of the group for programs.
    """

    kind: Kind
    title: str
    count: int = 1
    why: str = ""
    advice: FilledAdvice = NO_ADVICE
    examples: Sequence[Example] = ()
    word: str = ""
    counted: str = ""
    code: str = ""


def findings_section(groups: Sequence[FindingGroup], nothing: str) -> Section:
    """Return the section of a page that lists the findings, the worst first.

    Args:
        groups: Groups of findings; within a kind, their order is kept.
        nothing: Sentence to show if there are no findings.
    """
    ordered = sorted(groups, key=lambda group: _ORDER.index(group.kind))
    return Section("findings", "Findings", joined(_notices(ordered)) if ordered else paragraph(nothing))


def _notices(groups: Sequence[FindingGroup]) -> Iterator[Html]:
    left = MAX_BYTES
    seen: set[Command] = set()
    for group in groups[:MAX_GROUPS]:
        new = [each for each in dict.fromkeys(group.advice.commands) if each not in seen]
        seen.update(new)
        shown = _notice(group, new, left)
        left -= len(shown.encode())
        yield shown
    if rest := groups[MAX_GROUPS:]:
        count = sum(group.count for group in rest)
        yield paragraph(
            f"Left out of this page: {count_text(len(rest), 'more group')}, with {count_text(count, 'finding')}."
        )


def _notice(group: FindingGroup, commands: Sequence[Command], left: int) -> Html:
    shown = group.examples[:SHOWN_EXAMPLES] if left > 0 else ()
    content = [
        paragraph(f"{_bounded(group.why, MAX_SENTENCE)}.", *([" ", tag("code", group.code)] if group.code else []))
        if group.why
        else Html(),
        *advised(group.advice, commands, tag("b", "What to do: ")),
        tag("ol", *map(_example, shown), class_="examples") if shown else Html(),
        _rest(group, len(shown), left),
    ]
    counted = group.counted or (f"{group.count:,} found" if group.count > 1 else "")
    title = joined([_bounded(group.title), tag("span", _bounded(f" · {counted}"), class_="quiet") if counted else ""])
    return notice(group.kind, title, *content, word=group.word)


def _rest(group: FindingGroup, shown: int, left: int) -> Html:
    """Return a note on the findings that are not shown, with some of them folded under it."""
    more = group.count - shown
    if not group.examples or more <= 0:
        return Html()
    words = f"{more:,} more like this"
    rows = []
    for example in group.examples[shown:]:
        row = [Cell(text(_bounded(each))) for each in (example.where, example.found, example.expected)]
        left -= sum(len(cell.content.encode()) for cell in row) + _ROW_BYTES
        if left < 0:
            break
        rows.append(row)
    if not rows:
        return paragraph(words, is_quiet=True)
    listed = table(f"The next {len(rows):,}", [Column("place"), Column("found"), Column("expected")], rows)
    return folded(words if len(rows) == more else f"{words}, the next {len(rows):,} listed", listed)


def _example(example: Example) -> Html:
    fields = {"place": example.where, "found": example.found, "expected": example.expected, **example.notes}
    pairs = (
        tag("div", tag("dt", _bounded(title)), tag("dd", tag("bdi", _bounded(value))))
        for title, value in fields.items()
        if value
    )
    return tag("li", tag("dl", *pairs))


def advised(advice: FilledAdvice, commands: Sequence[Command] | None = None, before: str = "") -> Iterator[Html]:
    """Yield an advice: its sentence, and its commands to copy.

    Args:
        commands: Those of its commands that are to be copied here; by default all.
        before: Text or element before the sentence.
    """
    if not advice.parts:
        return
    copied = advice.commands if commands is None else commands
    parts: list[str] = []
    for part in advice.parts:
        if isinstance(part, str):
            texts = _QUOTED.split(_bounded(part, MAX_SENTENCE))
            parts += [tag("code", each) if at % 2 else each for at, each in enumerate(texts)]
        else:  # the whole command is below
            parts.append(tag("code", " ".join(part.words[:2]) if part in copied else _bounded(part.line)))
    yield paragraph(before, *parts, ".")
    yield from (command(each.words) for each in copied)


def _bounded(value: str, most: int = MAX_TEXT) -> str:
    shown = printable_line(value)
    return shown if len(shown) <= most else f"{shown[:most]}…"
