"""Tests of the process that starts processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from commitlake.connectors.runtime import fork_server

PROGRAM = """
import tempfile
from commitlake.connectors.runtime import fork_server
from commitlake.connectors.runtime.local_runner import ProcessRunner
from commitlake.schemas.errors import CommitLakeError

if __name__ == "__main__":
    fork_server._SHORT_FOLDERS = {folders}
    try:
        print(sorted(ProcessRunner(2).run(abs, [-1, -2, -3])))
    except CommitLakeError as error:
        print(int(error.exit_code), error)
    print(tempfile.gettempdir())
"""

TASKS = """
import os

with open(os.environ["LOADED"], "a") as file:
    file.write(f"{os.getpid()}\\n")

def worker(number):
    return os.getpid()
"""
POOL = """
import os
from commitlake.connectors.runtime.local_runner import ProcessRunner
from tasks_of_a_test import worker

if __name__ == "__main__":
    print(os.getpid(), *{pid for _, pid in ProcessRunner(2).run(worker, range(6))})
"""


def run(folder: Path, short_folders: tuple[str, ...]) -> list[str]:
    """Run tasks in processes with a temporary folder; return the lines that the program prints."""
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("{folders}", repr(short_folders)))
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def long_folder(tmp_path: Path) -> Path:
    """A folder whose path is too long for a socket in it."""
    folder = tmp_path / ("n" * 100)
    folder.mkdir()
    return folder


def test_processes_run_with_a_temporary_folder_of_any_length(long_folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        assert run(long_folder, ("/nowhere", short)) == ["[(0, 1), (1, 2), (2, 3)]", str(long_folder)]
        assert list(Path(short).iterdir()) == []
    assert [path.name for path in long_folder.iterdir()] == ["program.py"]


def test_the_error_says_what_to_do_if_no_folder_is_short(long_folder: Path) -> None:
    first, folder = run(long_folder, ("/dev/null/none",))
    limit = fork_server._MAX_FOLDER_BYTES
    assert first.startswith(f"2 the path of the temporary folder {long_folder} has ")
    assert f" bytes, expected at most {limit}, and none of /dev/null/none can be written" in first
    assert first.endswith("Set TMPDIR to a folder with a shorter path")
    assert folder == str(long_folder)


def test_the_server_loads_the_module_of_the_tasks_for_all_processes(tmp_path: Path) -> None:
    (tmp_path / "tasks_of_a_test.py").write_text(TASKS)
    (tmp_path / "program.py").write_text(POOL)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "LOADED": str(tmp_path / "loaded")}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    program, *workers = done.stdout.split()
    loaded = (tmp_path / "loaded").read_text().split()
    assert len(loaded) == 2
    assert program in loaded
    assert not set(workers) & set(loaded)
