"""Commands that texts of the code, of the documentation and of alerts name have a job and options that exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache

from commitlake.jobs.cli.main import JOBS
from tests.support.snippets import pages
from tests.support.source_tree import FOLDERS, ROOT, parsed, python_files

_QUOTED = re.compile(r"'(?:\.venv/bin/)?commitlake ([^']+)'")
_CODE = re.compile(r"`(?:\.venv/bin/)?commitlake ([^`]+)`")
_ALERTS = ROOT / "conf" / "examples" / "alerts.yml"


def test_commands_named_in_the_code_exist() -> None:
    named = [
        (f"{path}:{line}", command)
        for folder in FOLDERS
        for path in python_files(folder)
        for line, text in _texts(parsed(path))
        for command in _QUOTED.findall(text)
    ]
    assert len(named) > 80
    assert [f"{place}: {command}: {fault}" for place, command in named if (fault := fault_of(command))] == []


def test_commands_named_in_the_documentation_exist() -> None:
    named = [
        (str(page.relative_to(ROOT)), " ".join(command.split()))
        for page in pages()
        for command in _CODE.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(named) > 10
    assert [f"{page}: {command}: {fault}" for page, command in named if (fault := fault_of(command))] == []


def test_commands_of_alerts_can_be_run_with_a_lake_and_a_store() -> None:
    text = re.sub(r"\{\{.*?\}\}", "X", _ALERTS.read_text(encoding="utf-8"))
    commands = _CODE.findall(text)
    assert len(commands) > 6
    for command in commands:
        job, *words = shlex.split(command)
        importlib.import_module(f"commitlake.jobs.{job}.command").build_parser().parse_args(words)


def test_faults_are_found() -> None:
    assert fault_of("verify STORE --local") == ""
    assert fault_of("verifi STORE") == "there is no such job"
    assert fault_of("verify --no-such-option") == "unknown options: --no-such-option"


def fault_of(command: str) -> str:
    """Return what is wrong with the job and the options of a command that is named in a text, or an empty text."""
    words = shlex.split(command.replace("…", "").replace('"', ""))
    job, *rest = words
    if job.startswith("-") or job == "JOB":
        return ""
    if job not in JOBS:
        return "there is no such job"
    unknown = [word for word in rest if re.fullmatch(r"--[a-z-]+", word) and word not in _options(job)]
    return f"unknown options: {', '.join(unknown)}" if unknown else ""


@cache
def _options(job: str) -> frozenset[str]:
    parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
    return frozenset(option for action in parser._actions for option in action.option_strings)


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module, with their lines; a value in an f-string is replaced by a letter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
