"""Checks for options that need or exclude another option, on the command line and in the environment.

Options without the one that they need are refused, because they would have no effect. The environment may be meant for
other jobs, so options in it are not refused.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import Options, variable_of

_Command = TypeVar("_Command", bound=Options)


def check_has_effect(arguments: Options | argparse.Namespace, options: Sequence[str], needed: str) -> None:
    """Refuse options that were given without the option that they need.

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
        if _value(arguments, option) not in (None, False, [], ()) and variable_of(option) not in os.environ:
            raise JobError(f"--{option} has no effect without --{needed}", f"add --{needed}, or leave it out")


def prefer_given(arguments: argparse.Namespace, given: str, other: str) -> None:
    """Remove an option that only the environment gives, if an option that excludes it is given.

    Args:
        arguments: parsed arguments of a job.
        given: name of the option that is preferred, without the dashes, or of a positional argument.
        other: name of the option that it excludes; its value is a string.
    """
    is_set = _value(arguments, other) is not None and _value(arguments, other) == os.environ.get(variable_of(other))
    if is_set and _value(arguments, given) and variable_of(given) not in os.environ:
        setattr(arguments, other.replace("-", "_"), None)


def without_variable(command: _Command, given: str, other: str) -> _Command:
    """Return a command without an option that only the environment gives, if an option that excludes it is given.

    Args:
        given: name of the option that is preferred, without the dashes, or of a positional argument.
        other: name of the option that it excludes; its value is a string.
    """
    is_set = _value(command, other) is not None and _value(command, other) == os.environ.get(variable_of(other))
    if is_set and _value(command, given) and variable_of(given) not in os.environ:
        return cast("_Command", replace(cast("Any", command), **{other.replace("-", "_"): None}))
    return command


def _value(arguments: Options | argparse.Namespace, option: str) -> object:
    return getattr(arguments, option.replace("-", "_"))
