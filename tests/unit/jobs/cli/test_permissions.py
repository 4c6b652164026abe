"""Tests of unreadable places: every job gives the same error and exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive import command as archive
from commitlake.jobs.cli.permissions import path_of_permission_error
from commitlake.jobs.lag import command as lag
from commitlake.jobs.query import command as query
from commitlake.jobs.tps import command as tps
from commitlake.schemas.errors import ExitCode

ROOT = Path(__file__).parents[4]
PROGRAM = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
# Whatever a job loads is loaded before it may no longer be.
import commitlake.connectors.lake.reader
import commitlake.pipelines.audit.audited_versions
import commitlake.jobs.guard.report
import commitlake.jobs.guard.rules
import commitlake.pipelines.retention.deletion_forecast
import commitlake.jobs.maintain.steps
import commitlake.jobs.cli.settings_check
import commitlake.pipelines.restore.run
import commitlake.jobs.cli.permissions
import commitlake.jobs.arguments.broker_name
import commitlake.jobs.arguments.similar_names
modules = {}
for name in ("query", "guard", "maintain", "audit", "restore"):
    modules[name] = importlib.import_module(f"commitlake.jobs.{name}.command")
if os.geteuid() == 0:
    os.seteuid(65534)
for name, *arguments in (line.split() for line in sys.argv[2].splitlines()):
    print(modules[name].main(arguments), flush=True)
"""


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("place", ["lake", "lake/messages", "lake/messages/_delta_log", "lake/edges"])
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (Path.touch, "a file"),
        (os.mkfifo, "a FIFO"),
        (_dangling, "a symbolic link that leads nowhere"),
        (_loop, "a symbolic link that leads nowhere"),
    ],
)
def test_anything_but_a_folder_in_the_place_of_a_folder_is_named(
    place: str, plant: Callable[[Path], None], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    plant(path)
    for module in (query, lag, archive, tps):
        arguments = ["--lake", str(tmp_path / "lake")]
        if module is archive:
            arguments += ["--store", str(tmp_path), "--local"]
        assert module.main(arguments) == ExitCode.USAGE
        assert f"{path}: expected " in (printed := capsys.readouterr().err)
        assert f"found {found}" in printed


@pytest.mark.parametrize(
    "name",
    [
        "messages/_delta_log/_last_checkpoint",
        f"messages/_delta_log/{1:020}.checkpoint.parquet",
        f"messages/_delta_log/{1:020}.json",
        f"messages/_delta_log/_seals/{1:020}.json",
        "messages/store_date=2026-11-20/part-0.parquet",
        "message_keys/part-0.parquet",
    ],
)
def test_a_fifo_in_a_table_is_refused_without_blocking(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    open_messages_for_append(Lake(str(lake)))
    path = lake / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    for module in (query, lag, tps):
        assert module.main(["--lake", str(lake)]) == ExitCode.USAGE
        assert f"{path}: expected a file, found a FIFO: move it elsewhere" in capsys.readouterr().err


def test_a_lake_without_read_permission_is_the_same_error_in_every_job(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    lakes = {tmp_path / str(number): name for number, name in enumerate((".", "messages", "messages/_delta_log"))}
    commands = []
    for lake, denied in lakes.items():
        open_messages_for_append(Lake(str(lake)))
        (lake / denied).chmod(0)
        commands += [f"{name} --lake {lake}" for name in ("query", "maintain", "audit")]
        commands += [f"guard --lake {lake} --store {tmp_path}", f"restore --lake {lake} --out {tmp_path}/out"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(ROOT), "\n".join(commands)],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": "/"},
        )  # fmt: skip
    finally:
        for lake, denied in lakes.items():
            (lake / denied).chmod(0o755)
    assert done.stdout.split() == ["2"] * len(commands), done.stderr
    assert done.stderr.count("permission denied for this user") == len(commands)
    assert all(str(lake) in done.stderr for lake in lakes)


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/data/lake"), "/data/lake"),
        (OSError(errno.EROFS, "Read-only file system", "/data/out"), "/data/out"),
        (OSError("Generic LocalFileSystem error: Unable to open file /l/a: Permission denied (os error 13)"), "/l/a"),
        (RuntimeError("java.nio.file.AccessDeniedException: s3a://b/k: status code: 403"), "s3a://b/k"),
        (OSError(errno.ENOSPC, "No space left on device", "/data"), None),
        (ValueError("of something else"), None),
    ],
)
def test_the_path_is_found_in_the_error(error: Exception, place: str | None) -> None:
    assert path_of_permission_error(error) == place


def test_the_path_is_found_in_the_cause_of_an_error() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = PermissionError(errno.EPERM, "Operation not permitted", "/data/x")
    assert path_of_permission_error(error) == "/data/x"
