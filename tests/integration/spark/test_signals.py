"""Signals to jobs that start a JVM: they leave no process, and the next run continues."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from commitlake.jobs.cli.process import list_descendant_ids
from tests.support.logs import messages, open_segment, write_store
from tests.support.signals import MarkedProcess, line_for
from tests.support.waiting import let_pass, wait_until


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store."""
    return write_store(tmp_path / "store", [(0, open_segment(messages(50), 1 << 18))])


def archive(started: list[MarkedProcess], store: Path, *options: str) -> MarkedProcess:
    """Start an archive into the lake next to a store."""
    lake = store.parent / "lake"
    job = MarkedProcess(
        [
            "-m",
            "commitlake.jobs.cli.main",
            "archive",
            "--store",
            str(store),
            "--broker",
            "a",
            "--lake",
            str(lake),
            "--spark",
            "--no-quality",
            *options,
        ]
    )
    started.append(job)
    return job


def has_workers(job: MarkedProcess) -> bool:
    """Return whether Spark has started a Python process."""
    for process in list_descendant_ids(job.process.pid):
        try:
            if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("jvm", signal.SIGINT),
        *(
            pytest.param(moment, number, marks=pytest.mark.long("another moment of the start, or the other signal"))
            for moment, number in [
                ("launcher", signal.SIGINT),
                ("launcher", signal.SIGTERM),
                ("jvm", signal.SIGTERM),
                ("context", signal.SIGINT),
                ("context", signal.SIGTERM),
                ("workers", signal.SIGINT),
                ("workers", signal.SIGTERM),
            ]
        ),
    ],
)
def test_a_signal_leaves_no_process_and_the_next_run_succeeds(
    started: list[MarkedProcess], store: Path, moment: str, number: signal.Signals
) -> None:
    job = archive(started, store)
    job.wait_until(lambda: job.child_count() > 0)
    if moment == "workers":
        job.wait_until(lambda: has_workers(job))
    else:
        let_pass({"launcher": 0.0, "jvm": 0.8, "context": 2.5}[moment], "the job gets as far as that")
    os.killpg(job.process.pid, number)
    code = job.process.wait(60)
    assert job.left() == []
    assert (code, job.error()) == (128 + number, line_for("commitlake archive", number))
    if moment == "workers":
        again = archive(started, store)
        assert again.process.wait(120) == 0, again.error()


def test_the_jvm_of_a_killed_job_ends(started: list[MarkedProcess], store: Path) -> None:
    job = archive(started, store)
    job.wait_until(lambda: has_workers(job))
    below = list_descendant_ids(job.process.pid)
    job.process.kill()
    wait_until(lambda: not any(map(process_is_running, below)))


def process_is_running(process: int) -> bool:
    """Return whether a process is running; a zombie has ended."""
    try:
        return b") Z" not in Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return False


@pytest.mark.long("an archive is ended each time, and a second signal has unit tests")
def test_a_follower_finishes_and_a_second_signal_ends_it_at_once(started: list[MarkedProcess], store: Path) -> None:
    job = archive(started, store, "--follow")
    job.wait_until((store.parent / "lake" / "archive_runs" / "_delta_log").is_dir)
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.process.stderr is not None
    assert job.process.stderr.readline() == "commitlake archive: stopping; a second signal ends it at once\n"
    os.killpg(job.process.pid, signal.SIGTERM)
    code = job.process.wait(60)
    assert job.left() == []
    assert code in (0, 143)
    assert "Traceback" not in job.error()
