"""New steps of a story while it continues: the lake is queried again until each outcome is final."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from commitlake.connectors.printable import escape_line
from commitlake.pipelines.lineage.message_history import OutcomeState, Step, Story
from commitlake.schemas.times import to_display_zone

FINAL = frozenset({
    OutcomeState.CONSUMED, OutcomeState.PASSED, OutcomeState.ROLLED_BACK, OutcomeState.CANCELLED, OutcomeState.DEAD,
    OutcomeState.REDRIVEN,
})  # fmt: skip
"""States that no later record is expected to change."""
INTERVAL = datetime.timedelta(seconds=2)
_MAX_TEXT = 300


@dataclass
class StoryFollower:
    """Printer for a message's story that is read repeatedly, which prints only steps that are new or changed.

    Attributes:
        say: Function that prints a line.
    """

    say: Callable[[str], None]
    _steps: dict[str, str] = field(default_factory=dict)
    _outcomes: dict[tuple[str, str | None], str] = field(default_factory=dict)

    def print_new_steps(self, story: Story) -> bool:
        """Print the steps that are new in a story, and return True if all its outcomes are final."""
        for step in story.steps:
            text = _step_line(step)
            if self._steps.get(step.id) != text:
                self._steps[step.id] = text
                self.say(text)
        for outcome in story.outcomes:
            key = outcome.step, outcome.group
            if self._outcomes.get(key) != outcome.text:
                self._outcomes[key] = outcome.text
                self.say(f"{'':19}  now: {_shorten(outcome.text)}")
        return bool(story.outcomes) and all(outcome.state in FINAL for outcome in story.outcomes)


def follow_story(
    read_story: Callable[[], Story],
    write_line: Callable[[str], None],
    sleep: Callable[[float], None],
    read_clock: Callable[[], float],
    timeout: datetime.timedelta,
) -> bool:
    """Print a story as it grows until each outcome is final or the timeout passes; return True if each is final.

    Args:
        read_story: Function that reads the story from the lake.
        write_line: Function that prints a line.
        sleep: Function that waits for a number of seconds.
        read_clock: Function that returns the seconds of a monotonic clock.
        timeout: Time after which the function gives up.
    """
    follower, end = StoryFollower(write_line), read_clock() + timeout.total_seconds()
    while not follower.print_new_steps(read_story()):
        if read_clock() >= end:
            return False
        sleep(INTERVAL.total_seconds())
    return True


def _step_line(step: Step) -> str:
    when = "" if step.at is None else f"{to_display_zone(step.at):%Y-%m-%d %H:%M:%S}"
    text = f": {_shorten(step.text)}" if step.text and step.text != step.title else ""
    return f"{when:19}  {_shorten(step.title)}{text}"


def _shorten(text: str) -> str:
    return escape_line(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")
