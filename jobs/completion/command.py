"""Print a completion script for a shell, made from the parsers of all jobs.

    commitlake completion bash > ~/.local/share/bash-completion/completions/commitlake

The script contains all jobs, options and choices, so completion does not start Python. Create it again after an
upgrade. The job reads and writes no files. Exit codes: 0; 2 for an unknown shell.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass

from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import argument
from commitlake.jobs.cli.settings_check import option_names_in_help
from commitlake.schemas.errors import ExitCode

DESCRIPTION = (
    "Print a script that completes jobs, options, choices and file names in a shell. Run it again after an upgrade."
)
EXAMPLES = (
    ("completion bash > ~/.local/share/bash-completion/completions/commitlake", "for bash; active in the next shell"),
    ('completion zsh > "${fpath[1]}/_commitlake"', "zsh"),
    ("completion fish > ~/.config/fish/completions/commitlake.fish", "fish"),
)
SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset({"FILE", "PATH", "STORE"})
_FOLDERS = frozenset({"DIR", "PLACE"})


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    """The command `completion`, which prints a script that completes commands and options in a shell."""

    NAME = "completion"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    shell: str = argument("bash, zsh or fish", is_optional=False, choices=SHELLS)

    def run(self) -> ExitCode:
        """Print the completion script for the chosen shell."""
        print(completion_script(self.shell))
        return ExitCode.OK


def completion_script(shell: str) -> str:
    """Return the completion script for a shell."""
    import shtab

    text: str = shtab.complete(_parser_of_all_jobs(), shell)
    return text


def _parser_of_all_jobs() -> argparse.ArgumentParser:
    """Return a parser with all jobs as subcommands, used only to describe their options."""
    from commitlake.jobs.cli.main import JOBS

    parser = argparse.ArgumentParser("commitlake", description="Message broker logs as tables.")
    parser.add_argument("--version", action="store_true", help="print the version")
    jobs = parser.add_subparsers(dest="job", metavar="JOB")
    for name, purpose in JOBS.items():
        described = importlib.import_module(f"commitlake.jobs.{name}.command").build_parser()
        own = jobs.add_parser(name, help=purpose, description=purpose)
        for action in described._actions:  # noqa: SLF001 (argparse has no other way)
            is_shown = action.help != argparse.SUPPRESS
            if is_shown and not isinstance(action, argparse._HelpAction):  # noqa: SLF001
                action.option_strings = option_names_in_help(action)
                own._add_action(_add_completion_type(action))  # noqa: SLF001
    return parser


def _add_completion_type(action: argparse.Action) -> argparse.Action:
    """Return the parser action, with the kind of shell completion for its value added."""
    import shtab

    if action.metavar in _FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own attribute
    elif action.metavar in _FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    if action.help:
        action.help = " ".join(action.help.split()).replace("{", "(").replace("}", ")")  # zsh expands braces
    return action


build_parser, main = Completion.parser, Completion.main
