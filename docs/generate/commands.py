"""Make the command-line reference: a page for each job, from its parser, and a page that lists the jobs."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable, Iterator
from types import ModuleType

from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.settings_check import option_names_in_help
from commitlake.schemas.errors import ExitCode
from docs.generate.prose import escaped, table

COMMON_OPTIONS = ("--help", "--config", "--quiet", "--verbose", "--raw", "--log-format", "--metrics-file")
"""Options that every job has. They are described once, on the page that lists the jobs."""
EXIT_CODES = {
    0: "All went well.",
    1: "The job failed: internal error, or a transient one, such as a busy object store. `--verbose` says more.",
    2: "Wrong usage: an option, a path or a lake that does not fit.",
    3: "The job ran, and found damage, a gap, a difference, or a segment that is about to be lost.",
    4: "Refused: another run was first ten times in a row, or the store is not the one that was archived.",
    130: "Ended by SIGINT.",
    141: "Standard output was closed by its reader, as `head` does.",
    143: "Ended by SIGTERM.",
}
_EPILOG_EXAMPLE = re.compile(r"^  # (?P<purpose>.*)\n  (?P<command>commitlake .*)$", re.MULTILINE)


def job_module(name: str) -> ModuleType:
    """Return the module of a job's command."""
    return importlib.import_module(f"commitlake.jobs.{name}.command")


def job_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a job."""
    parser: argparse.ArgumentParser = job_module(name).build_parser()
    return parser


def index_page() -> str:
    """Return the page that lists the jobs, their common options and the exit codes."""
    jobs = table(
        ("Job", "What it does", "Needs Spark?"),
        ([f"[`{name}`](commands/{name}.md)", _sentence(purpose), spark_need(name)] for name, purpose in JOBS.items()),
    )
    common = table(("Option", "Meaning"), _option_rows(_common_actions()))
    known = {int(code) for code in ExitCode}
    codes = table(("Exit code", "Meaning"), ([str(code), EXIT_CODES[code]] for code in sorted({*EXIT_CODES, *known})))
    return _INDEX.format(jobs=jobs, common=common, codes=codes)


def job_page(name: str) -> str:
    """Return the page of one job: its description, options and examples."""
    parser = job_parser(name)
    parts = [f"# commitlake {name}", escaped(" ".join((parser.description or "").split())), _usage(parser)]
    for title, about, actions in _groups(parser):
        rows = list(_option_rows(actions))
        if rows:
            parts += [f"## {title}", *([escaped(about)] if about else []), table(("Option", "Meaning"), rows)]
    parts += ["## Examples", *(_example(found) for found in _EPILOG_EXAMPLE.finditer(parser.epilog or ""))]
    parts.append(
        "Every job also takes the [common options](../command-line.md#options-of-every-job). [Exit codes]"
        "(../command-line.md#exit-codes) are the same for all jobs."
    )
    return "\n\n".join(parts) + "\n"


def spark_need(name: str) -> str:
    """Return when a job starts Spark, as its options say."""
    if name in {"demo", "topics"}:
        return "yes"
    shown = (action for action in job_parser(name)._actions if action.help != argparse.SUPPRESS)  # noqa: SLF001
    actions = {action.option_strings[-1]: action for action in shown if action.option_strings}
    needing = [f"`{name}`" for name in ("--transform", "--spark") if name in actions]
    return f"only with {' or '.join(needing)}" if needing else "no"


def _sentence(purpose: str) -> str:
    return purpose[0].upper() + purpose[1:] + "."


def _usage(parser: argparse.ArgumentParser) -> str:
    positionals = [_invocation(action) for action in parser._actions if not action.option_strings]  # noqa: SLF001
    words = [f"{parser.prog} [OPTIONS]", *(text.replace("`", "") for text in positionals)]
    return f"```text\n{' '.join(words)}\n```"


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, list[argparse.Action]]]:
    for group in parser._action_groups:  # noqa: SLF001 (argparse has no other way)
        actions = [action for action in group._group_actions if not _is_common(action)]  # noqa: SLF001
        title = {"positional arguments": "Arguments", "options": "Options"}.get(group.title or "", group.title or "")
        about = " ".join((group.description or "").split())
        yield title[:1].upper() + title[1:], about[:1].upper() + about[1:], actions


def _common_actions() -> list[argparse.Action]:
    return [action for action in job_parser("dump")._actions if _is_common(action)]  # noqa: SLF001


def _is_common(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.option_strings[-1] in COMMON_OPTIONS


def _option_rows(actions: Iterable[argparse.Action]) -> Iterator[tuple[str, str]]:
    for action in actions:
        if action.help != argparse.SUPPRESS:
            needed = "Required. " if action.required and action.option_strings else ""
            text = (action.help or "").replace("%%", "%")
            yield _invocation(action), needed + text[:1].upper() + text[1:]


def _invocation(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = "{" + ",".join(str(choice) for choice in action.choices) + "}"
    if value is None:
        value = action.dest.upper()
    if not action.option_strings:
        return f"`{value}`"
    names = ", ".join(option_names_in_help(action))
    return f"`{names}`" if action.nargs == 0 else f"`{names} {value}`"


def _example(found: re.Match[str]) -> str:
    purpose = found["purpose"]
    return f"{escaped(purpose[:1].upper() + purpose[1:])}:\n\n```console\n$ {found['command']}\n```"


_INDEX = """# Command line

CommitLake has one command, `commitlake`. Its first argument is a job.

{jobs}

`commitlake --help` lists the jobs, `commitlake JOB --help` prints the options of one with examples, and
`commitlake --version` prints the version.

## Options of every job

{common}

## Settings

A job takes each option from the first of these places that has it:

1. the command line: `--lake /data/lake`
2. the environment: `COMMITLAKE_LAKE=/data/lake`
3. a TOML file, which has a table for each job: the file that `--config` names, or else `~/.config/commitlake.toml`
4. the default

`conf/commitlake.example.toml` in the repository shows the options that are useful in a file. A file may set any
option. A key or table that no job reads is an error.

## Exit codes

{codes}

`archive --follow` and `broker` finish what they are doing at the first SIGINT or SIGTERM, and exit with 0. A second
signal ends them at once.
"""
