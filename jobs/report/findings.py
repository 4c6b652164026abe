"""Findings on a page, grouped by kind: the first of each group decoded, and the number of the others.

A log can have a million findings, each with untrusted texts. So a group shows its first examples. Further findings that
its source has kept are folded, as far as the page's size allows; the others are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from commitlake.jobs.report.html_blocks import MAX_SENTENCE, escape_and_shorten
from commitlake.schemas.finding_advice import NO_ADVICE, Command, FilledAdvice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    AdviceBlock,
    Block,
    Cell,
    Code,
    CollapsedContent,
    ExampleList,
    Kind,
    MutedText,
    Notice,
    Paragraph,
    Section,
    Strong,
    Table,
)
from commitlake.schemas.report_columns import Column

SHOWN_EXAMPLES = 3
"""Number of examples of a group that are shown at once."""
MAX_GROUPS = 100
"""Largest number of groups on a page; further groups are only counted."""
MAX_BYTES = 1 << 20
"""Size of the findings on a page above which no more examples are added."""
_ROW_BYTES = 400
"""Size of the HTML of a table row without its texts."""
Fields = Mapping[str, str]
_ORDER = (Kind.CRITICAL, Kind.WARNING, Kind.INFO, Kind.GOOD)


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a finding: where it is, and the content found and expected there.

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

    def shortened_fields(self) -> dict[str, str]:
        """Return the texts by field name, each cut to the length that is displayed."""
        fields = {"place": self.where, "found": self.found, "expected": self.expected, **self.notes}
        return {escape_and_shorten(title): escape_and_shorten(value) for title, value in fields.items()}


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
        counted: The count in words, where it is not simply the number of findings.
        code: Name of the group for programs.
        shown_count: Number of examples that are shown at once, as far as the size of the page allows.
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
    shown_count: int = SHOWN_EXAMPLES


def findings_section(groups: Sequence[FindingGroup], no_findings_text: str) -> Section:
    """Return the section of a report that lists the findings, the worst first.

    Args:
        groups: Groups of findings; within a kind, their order is kept.
        no_findings_text: Sentence to show if there are no findings.
    """
    ordered = sorted(groups, key=lambda group: _ORDER.index(group.kind))
    return Section(
        "findings", "Findings", list(_finding_group_notices(ordered)) if ordered else [Paragraph(no_findings_text)]
    )


def _finding_group_notices(groups: Sequence[FindingGroup]) -> Iterator[Block]:
    left = MAX_BYTES
    seen: set[Command] = set()
    for group in groups[:MAX_GROUPS]:
        new = [each for each in dict.fromkeys(group.advice.commands) if each not in seen]
        seen.update(new)
        shown, folded = _split_examples(group, left)
        heading = {"title": escape_and_shorten(group.title), "why": escape_and_shorten(group.why, MAX_SENTENCE)}
        left -= sum(map(_estimate_html_bytes, (heading, *shown, *folded)))
        yield _finding_group_notice(group, new, shown, folded)
    if rest := groups[MAX_GROUPS:]:
        count = sum(group.count for group in rest)
        yield Paragraph(f"Not shown: {format_count(len(rest), 'more group')}, with {format_count(count, 'finding')}.")


def _split_examples(group: FindingGroup, remaining_bytes: int) -> tuple[list[Fields], list[Fields]]:
    """Divide examples into those shown at once and those collapsed, as far as the remaining page size allows."""
    if remaining_bytes <= 0:
        return [], []
    fields: list[Fields] = []
    for number, example in enumerate(group.examples):
        fields.append(example.shortened_fields())
        remaining_bytes -= _estimate_html_bytes(fields[-1])
        if remaining_bytes < 0 and number >= SHOWN_EXAMPLES:
            fields.pop()
            break
    return fields[: group.shown_count], fields[group.shown_count :]


def _estimate_html_bytes(fields: Fields) -> int:
    """Estimate the number of bytes that an example adds to a page."""
    return _ROW_BYTES + sum(len(escape(value).encode()) for value in fields.values())


def _finding_group_notice(
    group: FindingGroup,
    commands: Sequence[Command],
    shown_examples: Sequence[Fields],
    folded_examples: Sequence[Fields],
) -> Notice:
    blocks: list[Block] = []
    if group.why:
        code = (" ", Code(group.code)) if group.code else ()
        blocks.append(Paragraph(f"{escape_and_shorten(group.why, MAX_SENTENCE)}.", *code))
    blocks.append(AdviceBlock(group.advice, commands, Strong("What to do: ")))
    if shown_examples:
        blocks.append(ExampleList(shown_examples))
    more = group.count - len(shown_examples)
    if group.examples and more > 0:
        blocks.append(_folded_examples_block(f"{more:,} more like this", folded_examples))
    counted = group.counted or (f"{group.count:,} found" if group.count > 1 else "")
    title = (escape_and_shorten(group.title), *((MutedText(escape_and_shorten(f" · {counted}")),) if counted else ()))
    return Notice(group.kind, title, *blocks, word=group.word)


def _folded_examples_block(summary: str, folded_examples: Sequence[Fields]) -> Block:
    """Return a note on the examples that are not shown at once, with some of them in a collapsed table."""
    if not folded_examples:
        return Paragraph(summary, is_quiet=True)
    rows = [[Cell(fields[key]) for key in ("place", "found", "expected")] for fields in folded_examples]
    listed = Table(f"The next {len(rows):,}", [Column("place"), Column("found"), Column("expected")], rows)
    return CollapsedContent(summary, listed)
