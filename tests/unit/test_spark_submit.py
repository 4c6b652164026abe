"""Tests of `spark-submit.sh` around the set-up: messages, choice of Java, and started command, without network."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.cli.main import JOBS
from tests.support.process_trees import wait_until_gone
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
JAVA = """#!/bin/sh
case "$*" in *jdk.incubator.vector*) [ -z "{lacks_module}" ] || exit 1;; esac
echo "Property settings:
    java.home = {home}
    java.specification.version = {version}
    java.version = {version}.0.1" >&2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The script with the files it reads, without a set-up."""
    root = tmp_path / "a project"
    root.mkdir()
    for name in ("spark-submit.sh", "pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(
        ROOT / "commitlake", root / "commitlake", symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("jobs", "schemas", "connectors"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def set_up(root: Path) -> None:
    """Create the result of a set-up: a stamp, and a Python that only prints its arguments."""
    made_from = [
        f"{root}\n".encode(),
        *((root / name).read_bytes() for name in ("pyproject.toml", "requirements.lock")),
    ]
    script('echo "$JAVA_HOME"; for word in "$@"; do echo "<$word>"; done', root / ".venv" / "bin" / "python")
    (root / ".venv" / ".set-up").mkdir()
    (root / ".venv" / ".set-up" / "stamp-run").write_text(hashlib.sha256(b"".join(made_from)).hexdigest() + "\n")


def script(text: str, path: Path) -> Path:
    """Write a program that is a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java(home: Path, version: str, *, lacks_module: bool = False) -> Path:
    """Write a program that prints the version of a Java, in a folder."""
    script(JAVA.format(home=home, version=version, lacks_module="yes" if lacks_module else ""), home / "bin" / "java")
    return home


def start(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a small environment: the system's tools are on the path, its Java is not."""
    tools = root / "tools"
    if not tools.exists():
        tools.mkdir()
        for name in (
            "bash",
            "sh",
            "readlink",
            "dirname",
            "cat",
            "sed",
            "cut",
            "sha256sum",
            "env",
            "mv",
            "mkdir",
            "tail",
            "true",
        ):
            (tools / name).symlink_to(str(shutil.which(name)))
    variables = {"HOME": str(root), "PATH": str(tools), **environment}
    return subprocess.run(
        [str(root / "spark-submit.sh"), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_jobs_without_a_set_up(project: Path, arguments: list[str]) -> None:
    done = start(project, *arguments, COMMITLAKE_PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert "./spark-submit.sh [SPARK-SUBMIT OPTIONS] JOB [ARGUMENTS]" in done.stdout
    for name, purpose in JOBS.items():
        assert f"  {name.ljust(max(map(len, JOBS)))}  {purpose}\n" in done.stdout
    assert not (project / ".venv").exists()


def test_the_error_for_a_missing_python_names_the_programs_tried(project: Path) -> None:
    old = script("exit 1", project / "python-old")
    done = start(project, "demo", COMMITLAKE_PYTHON=str(old))
    assert done.returncode == 1
    assert f"no usable Python was found: tried {old}\n  Install Python 3.11 or newer" in done.stderr


def test_a_complete_set_up_starts_the_job_with_unchanged_arguments(project: Path) -> None:
    set_up(project)
    home = java(project / "java", "17")
    done = start(project, "--master", "local[2]", "query", "--where", "a = 'b  c'", JAVA_HOME=str(home))
    words = ["-P", "-m", "commitlake.jobs.launch.submit", "--master", "local[2]", "query", "--where", "a = 'b  c'"]
    assert done.stdout.splitlines() == [str(home), *(f"<{word}>" for word in words)]
    assert (done.returncode, done.stderr) == (0, "")


def test_signals_are_blocked_until_the_job_handles_them(project: Path) -> None:
    set_up(project)
    script(
        'while read name value; do case $name in SigBlk:) echo "$value";; esac; done </proc/self/status',
        project / ".venv" / "bin" / "python",
    )
    done = start(project, "query", JAVA_HOME=str(java(project / "java", "17")))
    blocked = int(done.stdout, 16)
    assert all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def test_the_script_can_be_called_through_a_link_from_any_folder(project: Path, tmp_path: Path) -> None:
    set_up(project)
    home = java(project / "java", "17")
    link = tmp_path / "commitlake-submit"
    link.symlink_to(project / "spark-submit.sh")
    start(project)  # makes the tools
    environment = {"PATH": str(project / "tools"), "JAVA_HOME": str(home)}
    done = subprocess.run([str(link), "dump"], env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert "<dump>" in done.stdout


@pytest.mark.parametrize(
    ("given", "on_path", "chosen"),
    [
        ("17", "21", "given"),
        ("11", "21", "on_path"),
        ("8", "17", "on_path"),
        ("17 without the module", "17", "on_path"),
        (None, "17", "on_path"),
        ("21", None, "given"),
    ],
)
def test_a_suitable_java_is_chosen(project: Path, given: str | None, on_path: str | None, chosen: str) -> None:
    set_up(project)
    start(project)  # makes the tools
    environment = {}
    if given is not None:
        lacks_module = given.endswith("module")
        environment["JAVA_HOME"] = str(java(project / "given", given.split()[0], lacks_module=lacks_module))
    if on_path is not None:
        home = java(project / "on_path", on_path)
        environment["PATH"] = f"{project / 'tools'}{os.pathsep}{home / 'bin'}"
    for _ in range(2):  # the second time from the remembered result
        done = start(project, "demo", **environment)
        assert done.stdout.splitlines()[:1] == [str(project / chosen)], done.stderr


def test_another_java_home_is_checked_again(project: Path) -> None:
    set_up(project)
    for name in ("first", "second"):
        home = java(project / name, "17")
        assert start(project, "demo", JAVA_HOME=str(home)).stdout.splitlines()[0] == str(home)


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements.lock"])
def test_a_changed_lock_file_causes_a_new_set_up(project: Path, changed: str) -> None:
    set_up(project)
    with (project / changed).open("a") as lock:
        lock.write("# changed\n")
    done = start(project, "demo", COMMITLAKE_PYTHON=str(project / "none"))
    assert "no usable Python was found" in done.stderr


def test_an_unfinished_set_up_is_repeated(project: Path) -> None:
    set_up(project)
    (project / ".venv" / ".set-up" / "unfinished").touch()
    done = start(project, "demo", COMMITLAKE_PYTHON=str(project / "none"))
    assert "no usable Python was found" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_set_up_and_its_step(project: Path, number: signal.Signals, code: int) -> None:
    tools = ["touch", "find", "rm", "sleep"]
    start(project)  # makes the tools
    for name in tools:
        (project / "tools" / name).symlink_to(str(shutil.which(name)))
    # This Python takes long to create an environment.
    step = project / "step"
    python = script(f'case "$*" in *venv*/.venv) echo $$ > "{step}"; exec sleep 60;; esac', project / "python")
    environment = {"HOME": str(project), "PATH": str(project / "tools"), "COMMITLAKE_PYTHON": str(python)}
    with subprocess.Popen(
        [str(project / "spark-submit.sh"), "demo"], env=environment, stderr=subprocess.PIPE, text=True
    ) as started:
        wait_until(lambda: started.poll() is not None or (step.exists() and bool(step.read_text())))
        assert started.poll() is None
        started.send_signal(number)
        assert started.wait(30) == code
        assert started.stderr is not None
        *_, last = started.stderr.read().splitlines()
    assert last.startswith("spark-submit.sh: the set-up was ")
    wait_until_gone([int(step.read_text())], 60)
