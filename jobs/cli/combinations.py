"""Checks for options that need another option: without it they are refused, because they would have no effect."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.settings_check import variable_of


def check_has_effect(arguments: argparse.Namespace, options: Sequence[str], needed: str) -> None:
    """Refuse options that were given without the option that they need.

    Options from the environment are not checked, because they may be meant for other jobs.

    Args:
        arguments: parsed arguments of a job; an option that was not given is None, false or empty.
        options: names of the options, without the dashes.
        needed: name of the option that they need, without the dashes.

    Raises:
        JobError: for the first such option.
    """
    if _value(arguments, needed):
        return
    for option in options:
        if _value(arguments, option) not in (None, False, []) and variable_of(option) not in os.environ:
            raise JobError(f"--{option} has no effect without --{needed}", f"add --{needed}, or leave it out")


def _value(arguments: argparse.Namespace, option: str) -> object:
    return getattr(arguments, option.replace("-", "_"))
