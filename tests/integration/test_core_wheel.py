"""The wheel without extras: features that work, and errors of those that need an extra."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.logs import messages, open_segment, write_store
from tests.support.wheel_environments import build_wheel, clean_variables, make_environment

pytestmark = [pytest.mark.long("installs the wheel from the package registry"), pytest.mark.timeout(1800)]
Command = Callable[..., "subprocess.CompletedProcess[str]"]
NO_EXTRA = ("pyspark", "py4j", "pandas", "great_expectations", "happybase", "boto3", "prometheus_client", "uvloop")


@pytest.fixture(scope="module")
def commitlake(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A command of an environment that has the wheel without extras."""
    folder = tmp_path_factory.mktemp("wheel")
    python = make_environment(folder / "env", build_wheel(folder))
    for name in NO_EXTRA:
        found = subprocess.run([python, "-P", "-c", f"import {name}"], capture_output=True, check=False)
        assert found.returncode != 0, name

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(python.with_name("commitlake")), *map(str, arguments)]
        return subprocess.run(
            command, cwd=folder, env=clean_variables(), capture_output=True, text=True, check=False, timeout=300
        )

    return run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with ten messages."""
    return write_store(tmp_path_factory.mktemp("broker") / "store", [(0, open_segment(messages(10), 16384))])


def test_help_and_version_need_no_extra(commitlake: Command) -> None:
    assert "usage: commitlake JOB" in commitlake("--help").stdout
    assert commitlake("--version").stdout.startswith("commitlake ")


@pytest.fixture(scope="module")
def lake(commitlake: Command, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with these messages."""
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    done = commitlake("archive", "--store", store, "--lake", lake, "--local", "--no-quality")
    assert done.returncode == 0, done.stderr
    return lake


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["dump", "{store}"], "order-9"),
        (["explain", "{store}"], "store"),
        (["rebuild", "--store", "{store}", "--local", "--out", "{out}"], ""),
        (["query", "--lake", "{lake}", "--key", "order-1"], "order-1"),
        (["query", "--lake", "{lake}", "--sql", "SELECT count(*) AS n FROM messages"], "10"),
        (["lineage", "--lake", "{lake}", "--key", "order-1"], "order-1"),
        (["tps", "--lake", "{lake}"], ""),
        (["restore", "--lake", "{lake}", "--out", "{out}"], ""),
    ],
)
def test_the_core_reads_stores_and_lakes(
    commitlake: Command, store: Path, lake: Path, tmp_path: Path, arguments: list[str], shown: str
) -> None:
    done = commitlake(*(text.format(store=store, lake=lake, out=tmp_path / "out") for text in arguments))
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_the_core_audits_and_maintains_a_lake(commitlake: Command, lake: Path) -> None:
    for arguments in (["audit", "--lake", lake, "--local"], ["maintain", "--lake", lake], ["dlq", "--lake", lake]):
        done = commitlake(*arguments)
        assert done.returncode == 0, done.stderr


def test_the_core_verifies_a_store(commitlake: Command, store: Path) -> None:
    done = commitlake("verify", "--store", store, "--local")
    assert done.returncode == 3, done.stderr  # the store has no queues
    assert "records: 10;" in done.stderr


def test_doctor_names_the_packages_that_are_missing(commitlake: Command, store: Path) -> None:
    done = commitlake("doctor", "--store", store)
    assert "not installed: pyspark" in done.stdout, done.stderr
    assert "pip install 'commitlake[" in done.stdout
    assert "spark-submit.sh" not in done.stdout  # the wheel has no scripts
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["archive", "--store", "{store}", "--lake", "{lake}", "--spark"], "spark"),
        (["archive", "--store", "{store}", "--lake", "{lake}"], "quality"),
        (["dump", "hdfs://127.0.0.1:9/store"], "hdfs"),
        (["ship", "--store", "{store}", "--to", "hdfs://127.0.0.1:9/store", "--once"], "hdfs"),
        (["verify", "--store", "{store}", "--local", "--metrics-file", "metrics.prom"], "metrics"),
    ],
)
def test_a_missing_extra_is_an_error_that_names_it(
    commitlake: Command, store: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    done = commitlake(*(text.format(store=store, lake=tmp_path / "lake") for text in arguments))
    assert done.returncode == 2, done.stderr
    assert f"pip install 'commitlake[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "lake").exists()
