"""A story in a terminal: a tree of steps with times and gaps, then the outcomes, and cautions.

    2026-11-20 (UTC)
    14:00:00.120           ● half message for orders: queue 2, offset 1,203
    14:00:00.430   310 ms  ├─ transaction committed: queue 2, offset 1,203
    14:00:00.432   312 ms  └─ committed to orders: queue 2, offset 1,203
    14:00:00.470    38 ms     ├─ consumed by audit: the first try, took 36 ms, success
    14:00:00.540   108 ms     └─ waits in level 3 for the first retry of billing
    14:00:10.550      10 s       ↓ the first retry of billing

A step that is the only successor of another one is drawn at the same level, so that 16 retries do not need 16 levels.
Texts are untrusted, so they are escaped before they are drawn, and long ones are shortened.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from commitlake.connectors.printable import escape_line
from commitlake.jobs.cli.terminal import unguarded_stream
from commitlake.pipelines.lineage.message_history import Outcome, OutcomeState, Step, StepKind, Story, TreeLine
from commitlake.pipelines.lineage.value_texts import approximate_duration_text, clock_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import to_display_zone

MAX_TEXT = 400
_TIMES = 23
"""Widths of the columns for times and gaps."""
_NARROW = 60
"""Smallest width with times and texts side by side."""
_LEAST = 24
"""Smallest width for the text of a step; deeper steps are not indented further."""
_STATES = {
    OutcomeState.CONSUMED: "green", OutcomeState.DEAD: "bold red", OutcomeState.OVERDUE: "bold red",
    OutcomeState.FAILED: "yellow", OutcomeState.NOT_CONSUMED: "yellow", OutcomeState.PREPARED: "yellow",
    OutcomeState.WAITING: "cyan", OutcomeState.UNKNOWN: "dim",
}  # fmt: skip
_MAX_ALIKE = 5
"""Number of equal outcomes that have a line each."""
_KINDS = {StepKind.DLQ: "bold red", StepKind.RETRY: "yellow", StepKind.MISSING: "dim", StepKind.DELAY: "cyan",
          StepKind.TIMER: "cyan"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _TreeGlyphs:
    """Characters with which the lines of the tree are drawn."""

    root: str
    only: str
    fork: str
    last: str
    bar: str
    dot: str


_DRAWN = _TreeGlyphs("● ", "↓ ", "├─ ", "└─ ", "│  ", "•")
_PLAIN = _TreeGlyphs("* ", "| ", "|- ", "`- ", "|  ", "-")


@dataclass(slots=True)
class _OpenStep:
    """Step of the tree that still has following steps to draw: their number, and the prefix of their lines."""

    children: int
    before: str
    depth: int


def write_tree(story: Story, out: TextIO, *, width: int | None = None) -> None:
    """Print a message's story as a tree of steps.

    Args:
        out: Output stream; colours are used only on a terminal.
        width: Width in columns; by default that of the terminal, or 100 without a terminal.
    """
    is_terminal = out.isatty()
    columns = width or (None if is_terminal else 100)
    console = Console(file=unguarded_stream(out), width=columns, markup=False, highlight=False, emoji=False)
    encoding = (getattr(unguarded_stream(out), "encoding", None) or "utf-8").lower()
    glyphs = _DRAWN if encoding.replace("-", "").startswith("utf") else _PLAIN
    for line in tree_lines(story, console.width, glyphs):
        console.print(line, overflow="ignore", no_wrap=True, crop=False, soft_wrap=True)


def tree_lines(story: Story, width: int, glyphs: _TreeGlyphs = _DRAWN) -> Iterator[Text]:
    """Yield the lines of the tree that shows a message's story."""
    known = (
        "nothing is archived"
        if story.as_of is None
        else f"the lake is complete until {to_display_zone(story.as_of):%Y-%m-%d %H:%M:%S %Z}"
    )
    yield from _wrap_text("", Text(_printable_text(story.asked), "bold"), width)
    yield from _wrap_text("", Text(f"{format_count(len(story.steps), 'step')}; {known}"), width)
    yield from _step_lines(story, width, glyphs)
    if story.outcomes:
        yield Text("")
        yield Text("Outcomes", "bold")
        for line in _outcome_lines(story):
            yield from _wrap_text(f"  {glyphs.dot} ", line, width)
    cautions = [*story.cautions]
    if story.not_shown:
        more = format_count(story.not_shown, "more record that matches", "more records that match")
        cautions.append(f"not shown: {more} the question")
    if cautions:
        yield Text("")
        yield Text("Not known", "bold")
        for caution in cautions:
            yield from _wrap_text(f"  {glyphs.dot} ", Text(_printable_text(caution)), width)


def _outcome_lines(story: Story) -> Iterator[Text]:
    """Yield a line for each outcome; many with the same title, group and state share one line with their count."""
    messages = _steps_shown_as_titles(story)

    def outcome_key(outcome: Outcome) -> tuple[str, str | None, OutcomeState]:
        return messages[outcome.step].title, outcome.group, outcome.state

    alike: dict[tuple[str, str | None, OutcomeState], list[Outcome]] = {}
    for outcome in story.outcomes:
        alike.setdefault(outcome_key(outcome), []).append(outcome)
    for outcome in story.outcomes:
        others, style = alike[outcome_key(outcome)], _STATES.get(outcome.state, "")
        if len(others) <= _MAX_ALIKE:
            yield Text(f"{_title_and_time(messages[outcome.step])}: ", "dim").append(
                _printable_text(outcome.text), style
            )
        elif outcome is others[0]:
            yield _outcome_count_line(others, messages).append(_printable_text(_state_in_words(outcome)), style)


def _outcome_count_line(outcomes: Sequence[Outcome], messages: Mapping[str, Step]) -> Text:
    times = sorted(at for outcome in outcomes if (at := messages[outcome.step].at) is not None)
    span = f", {_clock_text(times[0])} to {_clock_text(times[-1])}" if times else ""
    title = _printable_text(messages[outcomes[0].step].title)
    return Text(f"{format_count(len(outcomes), 'message')} {title}{span}: ", "dim")


def _state_in_words(outcome: Outcome) -> str:
    group = "" if outcome.group is None else f" ({outcome.group})"
    return f"{outcome.state.replace('_', ' ')}{group}"


def _steps_shown_as_titles(story: Story) -> dict[str, Step]:
    """Return the step whose title heads an outcome, by step id; a consumption is headed by the consumed record."""
    steps = {step.id: step for step in story.steps}
    sources = {edge.target: steps[edge.source] for edge in story.edges if edge.source in steps}
    return {name: sources.get(name, step) if step.consumption is not None else step for name, step in steps.items()}


def _title_and_time(step: Step) -> str:
    when = f", {_clock_text(step.at)}" if step.at is not None else ""
    return f"{_printable_text(step.title)}{when}"


def _step_lines(story: Story, width: int, glyphs: _TreeGlyphs) -> Iterator[Text]:
    branches = list(story.iterate_tree_lines())
    children = _follower_counts(branches)
    stack: list[_OpenStep] = []
    day: datetime.date | None = None
    for number, branch in enumerate(branches):
        while stack and stack[-1].depth >= branch.depth:
            stack.pop()
        above = stack[-1] if stack else None
        first, rest = _line_prefixes(branch, above, glyphs)
        at = branch.step.at
        if at is not None and (today := to_display_zone(at)).date() != day:
            day = today.date()
            yield Text("")
            yield Text(f"{today:%Y-%m-%d (%Z)}", "dim")
        yield from _single_step_lines(branch, first, rest, width)
        below = rest if _time_columns_width(width) + cell_len(rest) + _LEAST < width else rest[:-3] or rest
        stack.append(_OpenStep(children[number], below, branch.depth))


def _follower_counts(branches: Sequence[TreeLine]) -> list[int]:
    """Return the number of steps that directly follow each step of the tree."""
    found = [0] * len(branches)
    path: list[int] = []
    for number, branch in enumerate(branches):
        del path[branch.depth :]
        if path:
            found[path[-1]] += 1
        path.append(number)
    return found


def _line_prefixes(branch: TreeLine, parent: _OpenStep | None, glyphs: _TreeGlyphs) -> tuple[str, str]:
    """Return the line prefixes of a step: for its first line, and for the lines below it."""
    if parent is None:
        return glyphs.root, ""
    if parent.children == 1:
        return parent.before + glyphs.only, parent.before
    if branch.last:
        return parent.before + glyphs.last, parent.before + "   "
    return parent.before + glyphs.fork, parent.before + glyphs.bar


def _single_step_lines(branch: TreeLine, first_prefix: str, next_prefix: str, width: int) -> Iterator[Text]:
    step = branch.step
    line = Text(_printable_text(step.title), _step_style(step))
    if branch.again:
        line.append(" (shown above)", "dim")
    elif step.text and step.text != step.title:
        line.append(f": {_printable_text(step.text)}", "dim")
    if branch.edge is not None and branch.edge.kind in ("retried", "dead"):
        line.append(f" ({_printable_text(branch.edge.text)})", "dim")
    if branch.cut:
        line.append(f" … {format_count(branch.cut, 'edge')} more", "dim")
    clock = _clock_text(step.at) if step.at is not None else ""
    gap = approximate_duration_text(branch.gap) if branch.gap is not None else ""
    head = f"{clock:<12} {gap:>8}  "
    times = _time_columns_width(width)
    if not times:
        yield Text(head.rstrip(), "dim")
    below = " " * times + next_prefix + " " * (cell_len(first_prefix) - cell_len(next_prefix))
    yield from _wrap_text((head if times else "") + first_prefix, line, width, below)


def _time_columns_width(width: int) -> int:
    """Return the width of the columns for times and gaps; 0 on narrow terminals, where they have their own lines."""
    return _TIMES if width >= _NARROW else 0


def _step_style(step: Step) -> str:
    if step.consumption is not None:
        succeeded = step.consumption.succeeded
        return "green" if succeeded else "yellow" if succeeded is False else ""
    return _KINDS.get(step.kind, "")


def _wrap_text(first_prefix: str, text: Text, width: int, next_prefix: str | None = None) -> Iterator[Text]:
    """Wrap a text after a prefix, and yield its lines; very narrow widths are exceeded so that words fit."""
    below = " " * cell_len(first_prefix) if next_prefix is None else next_prefix
    room = max(_LEAST, width - cell_len(first_prefix))
    console = Console(width=room, file=sys.stderr)
    lines = text.wrap(console, room, overflow="fold")
    for number, line in enumerate(lines or [Text("")]):
        line.rstrip()
        yield Text.assemble((first_prefix if number == 0 else below, "dim"), line)


def _clock_text(moment: datetime.datetime) -> str:
    return clock_text(to_display_zone(moment))


def _printable_text(text: str) -> str:
    shown = escape_line(text[:MAX_TEXT])
    return shown if len(text) <= MAX_TEXT else f"{shown}…"
