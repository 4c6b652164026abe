"""The report of `commitlake lineage`: what happened to a message, as steps, outcomes and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from commitlake.jobs.lineage.arguments import TITLE
from commitlake.jobs.lineage.picture.lanes import assign_lanes
from commitlake.jobs.lineage.picture.picture_rows import PictureRows, choose_picture_rows
from commitlake.jobs.lineage.picture.step_details import step_details_html
from commitlake.jobs.lineage.picture.step_shapes import (
    BEGUN,
    FAILED,
    FOLDED,
    glyph_definitions_html,
    glyph_legend_html,
    glyph_name_of,
)
from commitlake.jobs.lineage.picture.story_graph import story_graph_html
from commitlake.jobs.lineage.picture.timeline_overview import overview_html
from commitlake.jobs.lineage.story_json import step_rows
from commitlake.jobs.report.html_elements import join_html, tag
from commitlake.jobs.report.value_decoding import time_text
from commitlake.pipelines.lineage.message_history import Evidence, Outcome, OutcomeState, StepKind, Story
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    Badge,
    Cell,
    Html,
    Kind,
    Name,
    Paragraph,
    Report,
    Section,
    Sentence,
    StepLink,
    Table,
    Text,
    Verdict,
)
from commitlake.schemas.report_columns import Column

MAX_OUTCOMES = 300
"""Largest number of outcomes shown; of more, the worst."""
MAX_CAUTIONS = 50
_MAX_SENTENCE = 300
_KINDS = {
    OutcomeState.OVERDUE: Kind.CRITICAL,
    OutcomeState.DEAD: Kind.CRITICAL,
    OutcomeState.FAILED: Kind.WARNING,
    OutcomeState.PREPARED: Kind.WARNING,
    OutcomeState.NOT_CONSUMED: Kind.WARNING,
    OutcomeState.WAITING: Kind.INFO,
    OutcomeState.PASSED: Kind.INFO,
    OutcomeState.UNKNOWN: Kind.INFO,
    OutcomeState.REDRIVEN: Kind.INFO,
    OutcomeState.ROLLED_BACK: Kind.INFO,
    OutcomeState.CANCELLED: Kind.INFO,
    OutcomeState.CONSUMED: Kind.GOOD,
}
"""Severity of each state, the worst first."""
_WORST_FIRST = list(_KINDS)
_WORDS = {state: state.replace("_", " ") for state in OutcomeState} | {OutcomeState.DEAD: "dead letter"}
_PROOFS = {
    Evidence.TRACE: "the client's trace",
    Evidence.RECORDS: "stored records",
    Evidence.OFFSETS: "the group's offset",
    Evidence.NONE: "nothing",
}
_COLUMNS = (
    Column("now", is_ranked=True),
    Column("in words"),
    Column("group"),
    Column("since, or due (UTC)"),
    Column("known by"),
    Column("step", is_ranked=True),
)


def lineage_report(story: Story, header_facts: Sequence[tuple[str, str]]) -> Report:
    """Return the report on a message's story: outcomes, picture, open questions and steps.

    Args:
        header_facts: Origin of the story, as pairs of a label and a value.
    """
    rows = choose_picture_rows(story)
    known = "nothing is archived" if story.as_of is None else time_text(story.as_of)
    header_facts = [
        *header_facts,
        ("Asked", story.asked),
        ("Lake complete until", known),
        ("Steps", f"{len(story.steps):,}"),
    ]
    sections = []
    if story.steps:
        picture, left_out = _picture_html(story, rows)
        if story.outcomes:
            sections.append(Section("outcomes", "Outcomes", [_outcome_table(story, rows)]))
        sections.append(Section("picture", "What happened", [picture]))
        if story.cautions or story.not_shown or left_out:
            sections.append(Section("cautions", "Not known", _caution_paragraphs(story, left_out)))
        sections.append(Section("steps", "Each step", [_ALL_STEPS, step_details_html(story, rows)]))
    elif story.cautions:
        sections.append(Section("cautions", "Not known", _caution_paragraphs(story, 0)))
    return Report(TITLE, story_verdict(story), header_facts, sections, "lineage")


def story_steps_section(story: Story) -> Section:
    """Return a report section with a table row for each step of a message's story."""
    return Section("table", "Steps", [Table.of_values("Steps", step_rows(story))])


def story_verdict(story: Story) -> Verdict:
    """Return the verdict on a message's story: a severity, and a sentence that sums up the outcomes."""
    asked = _shorten(story.asked)
    if not story.steps:
        return Verdict(Kind.INFO, f"No message in the lake has {asked}.", "Not found")
    if not story.outcomes:
        return Verdict(Kind.INFO, f"{asked}: {format_count(len(story.steps), 'step')}; the outcome is not known.")
    worst = min(story.outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.state))
    kind, word = _KINDS[worst.state], _WORDS[worst.state].capitalize()
    text = _shorten(worst.text).rstrip(".")
    if len(story.outcomes) == 1:
        return Verdict(kind, f"{asked}: {text}.", word)
    counts = Counter(outcome.state for outcome in story.outcomes)
    counted = ", ".join(_count_in_words(state, counts[state]) for state in _WORST_FIRST if counts[state])
    return Verdict(kind, f"{asked}: {counted}. {text[:1].upper()}{text[1:]}.", word)


def _picture_html(story: Story, rows: PictureRows) -> tuple[Html, int]:
    lanes = assign_lanes(rows.rows)
    found = {glyph_name_of(row.step) for row in rows.rows if not row.is_folded}
    glyphs = [each for each in (*StepKind, FAILED, BEGUN) if each in found]
    if rows.folded:
        glyphs.append(FOLDED)
    drawn, left_out = story_graph_html(story, rows, lanes)
    notes = [f"{format_count(rows.messages, 'message')}; times are UTC. Choose a step for its properties and body."]
    if rows.folded:
        notes.append(
            f"{rows.folded:,} of {format_count(len(story.steps), 'step')} are folded: messages with problems, and the "
            "newest, are drawn."
        )
    scaled = overview_html(story, rows, lanes)
    figure = tag(
        "figure",
        tag("figcaption", " ".join(notes)),
        glyph_legend_html(glyphs),
        tag("h3", "To scale") if scaled else Html(),
        scaled,
        tag("h3", "Step by step") if scaled else Html(),
        tag("div", drawn, _PANEL, class_="story"),
        class_="figure",
    )
    return join_html([glyph_definitions_html([*glyphs]), figure]), left_out


def _outcome_table(story: Story, rows: PictureRows) -> Table:
    ordered = sorted(story.outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.state))
    shown = ordered[:MAX_OUTCOMES]
    rest = f"The worst {len(shown):,} of {len(ordered):,} are shown." if len(shown) < len(ordered) else ""
    return Table("Each message, in each group that is known to consume it", _COLUMNS,
                 [_outcome_cells(outcome, rows) for outcome in shown], rest=rest)  # fmt: skip


def _outcome_cells(outcome: Outcome, rows: PictureRows) -> list[Cell]:
    row = rows.row_of.get(outcome.step)
    rank = len(_WORST_FIRST) - _WORST_FIRST.index(outcome.state)
    link: Text = "folded" if row is None else StepLink(row.number, _shorten(row.step.title))
    return [
        Cell(Badge(_KINDS[outcome.state], _WORDS[outcome.state]), rank),
        Cell(Sentence(outcome.text)),
        Cell(Name(outcome.group) if outcome.group is not None else "all"),
        Cell(time_text(outcome.at).removesuffix(" UTC") if outcome.at is not None else ""),
        Cell(_PROOFS[outcome.proof]),
        Cell(link, None if row is None else -row.number),
    ]


def _caution_paragraphs(story: Story, undrawn_edge_count: int) -> list[Paragraph]:
    sentences = [_shorten(caution) for caution in story.cautions[:MAX_CAUTIONS]]
    if len(story.cautions) > MAX_CAUTIONS:
        sentences.append(f"{len(story.cautions) - MAX_CAUTIONS:,} more remarks are left out of this page.")
    if story.not_shown:
        more = format_count(story.not_shown, "more record that matches", "more records that match")
        sentences.append(f"Not in this story: {more} the question.")
    if undrawn_edge_count:
        sentences.append(
            f"{format_count(undrawn_edge_count, 'line between steps is', 'lines between steps are')} not drawn; the "
            "details of "
            "the steps name them."
        )
    return [Paragraph(sentence) for sentence in sentences]


def _count_in_words(state: OutcomeState, count: int) -> str:
    return format_count(count, _WORDS[state]) if state is OutcomeState.DEAD else f"{count:,} {_WORDS[state]}"


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_SENTENCE else f"{value[:_MAX_SENTENCE]}…"


_ALL_STEPS = Paragraph("Open a step for its columns, properties and body.", is_quiet=True)
_PANEL = tag(
    "aside",
    tag("div", tag("b", "", class_="panel-title"), tag("button", "Close", type="button", class_="panel-close"),
        class_="panel-head"),
    tag("div", class_="panel-body"),
    class_="panel", role="region", aria_label="Chosen step", hidden=True,
)  # fmt: skip
"""The place where the script shows a step's details."""
