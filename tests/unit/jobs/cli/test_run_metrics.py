"""The metrics of a run, as Prometheus text."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commitlake.jobs.cli import run_metrics
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.schemas.errors import ExitCode


def run(path: Path, code: ExitCode = ExitCode.OK, *, messages: int = 0, name: str = "archive") -> int:
    """Run a job that counts messages and ends with a code."""

    def job(_: object) -> ExitCode:
        run_metrics.add_to_counter("archive_messages", messages)
        return code

    return run_job(job_parser(name, "Fill.", []), job, ["--metrics-file", str(path)])


def samples(path: Path) -> dict[str, float]:
    """Return the values in a file, by name and, if there is one, exit code."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            code = sample.labels.get("exit_code")
            found[sample.name if code is None else f"{sample.name} {code}"] = sample.value
            assert sample.labels["command"] in {"archive", "query"}
    return found


def test_a_run_writes_duration_exit_code_memory_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    assert run(path, messages=7) == 0
    found = samples(path)
    assert found["commitlake_run_exit_code"] == 0
    assert found["commitlake_run_duration_seconds"] >= 0
    assert found["commitlake_run_peak_memory_bytes"] > 1 << 20
    assert found["commitlake_run_end_timestamp_seconds"] == found["commitlake_run_last_success_timestamp_seconds"]
    assert found["commitlake_archive_messages_total"] == 7
    assert found["commitlake_runs_total 0"] == 1


def test_counters_continue_from_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    run(path, messages=7)
    before = samples(path)
    assert run(path, ExitCode.DAMAGE, messages=5) == 3
    found = samples(path)
    assert found["commitlake_archive_messages_total"] == 12
    assert (found["commitlake_runs_total 0"], found["commitlake_runs_total 3"]) == (1, 1)
    success = "commitlake_run_last_success_timestamp_seconds"
    assert found[success] == before[success]


@pytest.mark.parametrize("text", ["", "no metrics {", "commitlake_archive_messages_total{command=\"archive\"} NaN\n",
                                  "commitlake_archive_messages_total{command=\"archive\"} -4\n"])  # fmt: skip
def test_an_invalid_file_starts_counters_at_zero(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.prom"
    path.write_text(text)
    run(path, messages=3)
    assert samples(path)["commitlake_archive_messages_total"] == 3


def test_other_jobs_write_no_counters_of_archive(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    run(path, messages=3, name="query")
    assert "commitlake_archive_messages_total" not in samples(path)


def test_a_failed_job_writes_metrics(tmp_path: Path) -> None:
    def job(_: object) -> ExitCode:
        raise JobError("no lake")

    path = tmp_path / "run.prom"
    assert run_job(job_parser("archive", "Fill.", []), job, ["--metrics-file", str(path)]) == 2
    assert samples(path)["commitlake_run_exit_code"] == 2


def test_a_folder_that_does_not_exist_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "none" / "run.prom") == 2
    assert "expected a file in an existing folder" in capsys.readouterr().err


def test_an_undeclared_counter_is_an_error() -> None:
    with pytest.raises(KeyError):
        run_metrics.add_to_counter("bogus", 1)
