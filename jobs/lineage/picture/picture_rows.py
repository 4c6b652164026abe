"""Rows of a picture: one for each drawn step of a story, and one for each sequence of folded (hidden) steps.

A story may have thousands of steps. At most `MAX_STEPS` are drawn: whole messages, first those with problems, then the
newest. Folded steps between two drawn steps are one row with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from commitlake.pipelines.lineage.message_history import OutcomeState, Step, Story

MAX_STEPS = 1000
"""Largest number of drawn steps. A page with this many has some MB, and opens at once."""
CALM = frozenset({OutcomeState.CONSUMED, OutcomeState.PASSED, OutcomeState.ROLLED_BACK, OutcomeState.REDRIVEN})
"""States that need no action."""


@dataclass(frozen=True, slots=True)
class PictureRow:
    """Row in the picture of a message's story: one step, or several folded steps.

    Attributes:
        place: Index of the row in the picture, from 0.
        number: Number of the step among the drawn ones, from 1; links refer to it. 0 for folded steps.
        message: Number of its message, from 0: steps that are joined by edges have the same one; -1 for folded steps.
        steps: The step of the row, or the folded steps.
        is_folded: Whether the steps are folded.
    """

    place: int
    number: int
    message: int
    steps: Sequence[Step]
    is_folded: bool = False

    @property
    def step(self) -> Step:
        """Step of the row; for folded steps, the first one."""
        return self.steps[0]


@dataclass(frozen=True, slots=True)
class PictureRows:
    """All rows in the picture of a message's story.

    Attributes:
        rows: Rows in the order of the story's steps.
        messages: Number of messages in the story.
        folded: Number of folded steps.
        row_of: The row of each drawn step, by the step's id.
    """

    rows: Sequence[PictureRow]
    messages: int
    folded: int
    row_of: dict[str, PictureRow]


def choose_picture_rows(story: Story, max_steps: int = MAX_STEPS) -> PictureRows:
    """Choose at most `max_steps` steps of a story to draw, fold the others, and return the rows of the picture.

    Args:
        max_steps: The largest number of drawn steps.
    """
    message_of = _number_messages(story)
    kept = _choose_drawn_steps(story, message_of, max_steps)
    rows: list[PictureRow] = []
    number = 0
    for steps, is_folded in _fold_steps(story.steps, kept):
        if is_folded:
            rows.append(PictureRow(len(rows), 0, -1, steps, is_folded))
        else:
            number += 1
            rows.append(PictureRow(len(rows), number, message_of[steps[0].id], steps))
    row_of = {row.step.id: row for row in rows if not row.is_folded}
    return PictureRows(rows, len(set(message_of.values())), len(story.steps) - len(row_of), row_of)


def _number_messages(story: Story) -> dict[str, int]:
    """Return the message number of each step; steps that are connected by edges have the same number."""
    above = {step.id: step.id for step in story.steps}

    def find_first_step(step_id: str) -> str:
        while above[step_id] != step_id:
            above[step_id] = above[above[step_id]]
            step_id = above[step_id]
        return step_id

    for edge in story.edges:
        if edge.source in above and edge.target in above:
            above[find_first_step(edge.target)] = find_first_step(edge.source)
    numbers: dict[str, int] = {}
    return {step.id: numbers.setdefault(find_first_step(step.id), len(numbers)) for step in story.steps}


def _choose_drawn_steps(story: Story, message_numbers: dict[str, int], max_steps: int) -> set[str]:
    """Choose at most `max_steps` steps to draw, and return their ids; messages with problems come first."""
    if len(story.steps) <= max_steps:
        return set(message_numbers)
    by_message: dict[int, list[str]] = {}
    for step in story.steps:
        by_message.setdefault(message_numbers[step.id], []).append(step.id)
    troubled = {
        message_numbers[outcome.step]
        for outcome in story.outcomes
        if outcome.state not in CALM and outcome.step in message_numbers
    }
    kept: set[str] = set()
    for message in sorted(by_message, key=lambda message: (message not in troubled, -message)):
        room = max_steps - len(kept)
        ids = by_message[message]
        if len(ids) <= room:
            kept.update(ids)
        elif not kept:  # keep the beginning and the end of a message that is too long by itself
            kept.update(ids[: room // 2])
            kept.update(ids[len(ids) - (room - room // 2) :])
    return kept


def _fold_steps(steps: Sequence[Step], drawn_ids: set[str]) -> Iterator[tuple[list[Step], bool]]:
    """Group steps into rows: yield each drawn step alone, and each sequence of folded steps together."""
    folded: list[Step] = []
    for step in steps:
        if step.id not in drawn_ids:
            folded.append(step)
            continue
        if folded:
            yield folded, True
            folded = []
        yield [step], False
    if folded:
        yield folded, True
