"""Commands that do not need pandas do not load it, also not in their workers."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from commitlake.jobs.cli.spared_packages import spare_packages
from tests.support.local_archives import write_messages

COMMITLAKE = "import sys; from commitlake.jobs.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments."""
    folder = tmp_path_factory.mktemp("spared") / "store"
    write_messages(folder, 2000)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "STORE", "--local", "--processes", "2"),
        ("rebuild", "STORE", "--out", "rebuilt", "--local"),
        ("lag", "--store", "STORE"),
        ("tps", "--store", "STORE"),
        ("archive", "--store", "STORE", "--broker", "a", "--lake", "lake", "--local", "--no-quality"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_pandas_is_not_loaded(store: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", COMMITLAKE, *arguments, "--quiet"]
    given = [word.replace("STORE", str(store)) for word in command]
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(given, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow.lib" in loaded
    # A module that was refused is listed, too, but none of those that it would load.
    assert [name for name in loaded if name.startswith("pandas.core")] == []


def test_a_process_of_others_is_left_as_it_is() -> None:
    before = list(sys.meta_path)
    spare_packages(Namespace(local=True))
    assert sys.meta_path == before
