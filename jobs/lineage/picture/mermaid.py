r"""A story as a Mermaid flowchart, for a ticket: GitHub, GitLab and others draw it where it is pasted.

    flowchart TD
      s1["2026-11-20 14:00:00 sent to orders"]
      s2[["2026-11-20 14:00:04 dead letter of billing"]]
      s1 -- "4.2 s: billing gave up" --> s2

Labels are untrusted text. All characters except letters, digits and a few others are written as Mermaid's entities
(`#35;` for `#`), so that a label can neither end itself nor contain markup, Markdown or a directive.

Mermaid does not draw a text of more than 50,000 characters or 500 edges. This flowchart stays below both limits, and a
node says what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from commitlake.connectors.printable import escape_line
from commitlake.jobs.lineage.picture.picture_rows import PictureRow, choose_picture_rows
from commitlake.pipelines.lineage.message_history import Consumption, Step, StepKind, Story
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import format_time

MAX_STEPS = 80
MAX_EDGES = 160
MAX_CHARACTERS = 48_000
MAX_LABEL = 70
_SAFE = re.compile(r"[^A-Za-z0-9 .,:+_()/À-ÖØ-öø-ÿ\u0370-\u1fff\u3040-\ud7ff-]")
_ICON = re.compile(r"(?<=:)(?=fa-)")
"""Names of icons that Mermaid would replace, as in `fa:fa-ban`; a zero-width space is inserted into them."""
_SHAPES = {
    StepKind.NORMAL: ("[", "]"), StepKind.DELAY: ("([", "])"), StepKind.TIMER: ("([", "])"),
    StepKind.RETRY: ("[/", "/]"), StepKind.DLQ: ("[[", "]]"), StepKind.HALF: ("[\\", "\\]"),
    StepKind.OP: ("{{", "}}"), StepKind.TRACE: (">", "]"), StepKind.SYSTEM: ("[(", ")]"),
    StepKind.CONSUMPTION: ("(", ")"), StepKind.MISSING: ("((", "))"),
}  # fmt: skip
_CLASSES = (
    "classDef good fill:#e6f4ea,stroke:#1a6b3c,color:#1b1f24",
    "classDef bad fill:#fdeae8,stroke:#b3201a,color:#1b1f24",
    "classDef missing stroke-dasharray:4 3",
)


def story_flowchart(story: Story) -> str:
    """Return a message's story as a Mermaid flowchart; lines end with a newline."""
    rows = choose_picture_rows(story, MAX_STEPS)
    lines = ["flowchart TD", f"  asked{_node_text(('>', ']'), escape_label(story.asked))}"]
    size = sum(map(len, lines))
    places: set[int] = set()
    for row in rows.rows:
        found = list(_node_lines(row))
        size += sum(len(line) + 1 for line in found)
        if size > MAX_CHARACTERS:
            break
        lines += found
        places.add(row.place)
    drawn = [row for row in rows.rows if row.place in places]
    left_out = len(story.steps) - sum(len(row.steps) for row in drawn)
    edges = list(_edge_lines(story, {row.step.id: row for row in drawn if not row.is_folded}))
    for number, line in enumerate(edges):
        size += len(line) + 1
        if number >= MAX_EDGES or size > MAX_CHARACTERS:
            undrawn = format_count(len(edges) - number, "more edge is", "more edges are")
            lines.append(f"  edges{_node_text(('>', ']'), escape_label(f'{undrawn} not drawn'))}")
            break
        lines.append(line)
    more = left_out + story.not_shown
    if more:
        label = escape_label(format_count(more, "more step is", "more steps are") + " not drawn")
        lines.append(f"  more{_node_text(('>', ']'), label)}")
    return "\n".join([*lines, *(f"  {line}" for line in _CLASSES)]) + "\n"


def _node_lines(row: PictureRow) -> Iterator[str]:
    step = row.step
    if row.is_folded:
        folded = format_count(len(row.steps), "step")
        yield f"  f{row.place}{_node_text(('(((', ')))'), escape_label(f'{folded} folded'))}"
        return
    when = "" if step.at is None else f"{format_time(step.at)} "
    yield f"  s{row.number}{_node_text(_SHAPES[step.kind], when + escape_label(step.title))}{_node_class(step)}"


def _node_class(step: Step) -> str:
    match step.consumption:
        case Consumption(succeeded=True):
            return ":::good"
        case Consumption(succeeded=False):
            return ":::bad"
    return ":::bad" if step.kind is StepKind.DLQ else ":::missing" if step.kind is StepKind.MISSING else ""


def _edge_lines(story: Story, rows_by_step_id: dict[str, PictureRow]) -> Iterator[str]:
    for edge in story.edges:
        source, target = rows_by_step_id.get(edge.source), rows_by_step_id.get(edge.target)
        if source is None or target is None:
            continue
        gap = "" if edge.gap is None else f"{approximate_duration_text(edge.gap)}: "
        yield f'  s{source.number} -- "{gap}{escape_label(edge.text)}" --> s{target.number}'


def escape_label(text: str) -> str:
    """Return a text for a label: shortened, on one line, with entities for characters special to Mermaid."""
    shown = escape_line(text[: MAX_LABEL + 1])
    shown = shown if len(text) <= MAX_LABEL else f"{shown[:MAX_LABEL]}…"
    return _SAFE.sub(lambda match: f"#{ord(match[0])};", _ICON.sub("\u200b", shown)) or " "


def _node_text(brackets: tuple[str, str], label: str) -> str:
    opening, closing = brackets
    return f'{opening}"{label}"{closing}'
