"""Commands that do not need pandas do not load it, also not in their workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.verify.command import main as verify
from tests.support.local_archives import write_messages

COMMITLAKE = "import sys; from commitlake.jobs.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments."""
    folder = tmp_path_factory.mktemp("spared") / "store"
    write_messages(folder, 2000)
    return folder


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "STORE", "--processes", "2"),
        ("rebuild", "STORE", "--out", "rebuilt"),
        ("lag", "--store", "STORE"),
        ("tps", "--store", "STORE"),
        ("archive", "--store", "STORE", "--broker", "a", "--lake", "lake", "--no-quality"),
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


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "--store", "STORE", "--broker", "a", "--lake", "lake"),
        ("verify", "STORE"),
        ("rebuild", "STORE", "--out", "rebuilt"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_options_neither_pyspark_is_loaded_nor_java_started(
    store: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    java.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPROFILEIMPORTTIME": "1",
        "JAVA_HOME": str(java.parents[1]),
        "PATH": f"{java.parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-c", COMMITLAKE, *(word.replace("STORE", str(store)) for word in arguments)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow.lib" in loaded
    # great_expectations asks for parts of pyspark, but gets no session and no gateway to Java.
    assert [name for name in loaded if name.startswith(("pyspark.core", "pyspark.conf", "py4j.java_gateway"))] == []
    assert not (tmp_path / "started").exists()


def test_a_process_of_others_is_left_as_it_is(store: Path) -> None:
    before = list(sys.meta_path)
    assert verify([str(store), "--quiet"]) == 0
    assert sys.meta_path == before
