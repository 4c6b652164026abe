"""Confirmation before an action that cannot be undone."""

from __future__ import annotations

import sys

from commitlake.jobs.cli.command import JobError
from commitlake.schemas.errors import ExitCode


def confirm_action(question: str, *, intended_action: str, refusal_message: str, is_confirmed: bool) -> None:
    """Ask the user on the terminal to confirm an action, unless an option has confirmed it already.

    Args:
        question: The question, without the question mark.
        intended_action: The action, for the error if there is no terminal.
        refusal_message: The message if the action is not done, such as "nothing was sent".
        is_confirmed: Whether the user has given --yes, or need not be asked.

    Raises:
        JobError: The answer is no, or there is no terminal to ask at.
    """
    if is_confirmed:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # None: standard input is closed
        raise JobError(
            f"{intended_action}, but there is no terminal to ask for confirmation: {refusal_message}", "add --yes"
        )
    print(f"{question}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # Ctrl-C or Ctrl-D: the next message begins a line
            print(file=sys.stderr, flush=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise JobError(refusal_message, exit_code=ExitCode.REFUSED)
