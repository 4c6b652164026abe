"""Output of a driver, sent through a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.spark.driver_output import copy_output
from tests.support.source_tree import ROOT
from tests.support.waiting import wait_until

PRINTING = """
import os, subprocess, sys, time
from commitlake.connectors.spark import driver_output
from tests.unit.connectors.spark.test_driver_output import LocalFolder
driver_output._WAITS_SECONDS = (0.1, 0.5)
sender = driver_output.OutputSender(LocalFolder(sys.argv[1]))
print("first", flush=True)
print("trouble", file=sys.stderr, flush=True)
subprocess.run(["echo", "of a child"])
sys.stdin.readline()
os.write(1, b"\\xff" * 3_000_000)
sender.close(3)
print("afterwards")
"""


class LocalFolder:
    """A folder of this machine; without it, nothing can be written."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def file_names(self) -> list[str]:
        """List the files."""
        return [file.name for file in self._folder.iterdir()] if self._folder.is_dir() else []

    def read(self, name: str) -> bytes:
        """Read a file."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside, then rename it."""
        (self._folder / f"_{name}").write_bytes(content)
        (self._folder / f"_{name}").rename(self._folder / name)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._folder / name).unlink()


def printing(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that prints."""
    return subprocess.Popen(
        [sys.executable, "-c", PRINTING, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_output_arrives_while_the_job_runs_and_then_its_exit_code(tmp_path: Path) -> None:
    found = {1: b"", 2: b""}
    codes: list[int | None] = []

    def take(stream: int, content: bytes) -> None:
        found[stream] += content

    with printing(tmp_path) as job:
        wait_until(lambda: codes.append(copy_output(LocalFolder(tmp_path), take)) or b"child" in found[1])  # type: ignore[func-returns-value]
        assert found == {1: b"first\nof a child\n", 2: b"trouble\n"}
        assert set(codes) == {None}
        printed, errors = job.communicate(b"\n", timeout=60)
    assert copy_output(LocalFolder(tmp_path), take) == 3
    assert found == {1: b"first\nof a child\n" + b"\xff" * 3_000_000, 2: b"trouble\n"}
    assert [file.name for file in tmp_path.iterdir()] == ["end-3"]
    assert printed == found[1] + b"afterwards\n"  # also in the cluster's own log
    assert errors == b"trouble\n"


def test_a_folder_that_cannot_be_written_does_not_stop_the_job(tmp_path: Path) -> None:
    with printing(tmp_path / "missing") as job:
        printed, errors = job.communicate(b"\n", timeout=60)
    assert job.returncode == 0
    assert len(printed) > 3_000_000
    assert errors.count(b"the output cannot be sent to the user: ") == 1


@pytest.mark.parametrize("name", ["_000000001-1", "000000001-3", "1-1", "end-", "end-1000", "end-0x"])
def test_other_files_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert copy_output(LocalFolder(tmp_path), lambda *_: pytest.fail("was copied")) is None
    assert copy_output(LocalFolder(tmp_path / "missing"), lambda *_: None) is None


def test_parts_are_copied_in_their_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        (tmp_path / f"{number:09d}-1").write_bytes(b"%d " % number)
    (tmp_path / "end-0").touch()
    seen: list[bytes] = []
    assert copy_output(LocalFolder(tmp_path), lambda _, content: seen.append(content)) == 0
    assert b"".join(seen) == b"1 2 10 "


FAILING = """
import sys
from commitlake.connectors.spark import driver_output
from tests.unit.connectors.spark.test_driver_output import LocalFolder

class Busy(LocalFolder):
    failures = int(sys.argv[2])

    def write(self, name, content):
        if self.failures:
            self.failures -= 1
            raise RuntimeError("busy")
        super().write(name, content)

driver_output._WAITS_SECONDS = (0, 0)
sender = driver_output.OutputSender(Busy(sys.argv[1]))
print("text", flush=True)
sender.close(3)
"""


@pytest.mark.parametrize(("failures", "expected"), [(2, b"text\n"), (3, b"")])
def test_the_exit_code_arrives_after_failures_of_the_folder(tmp_path: Path, failures: int, expected: bytes) -> None:
    subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path), str(failures)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True,
    )  # fmt: skip
    found = bytearray()
    assert copy_output(LocalFolder(tmp_path), lambda _, content: found.extend(content)) == 3
    assert found == expected
