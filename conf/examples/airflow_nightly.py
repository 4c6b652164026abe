"""The nightly run as an Airflow DAG (tested with Airflow 3.3.2): guard -> archive -> audit -> maintain -> verdict.

Copy it into the folder of DAGs. The workers need the command `commitlake` on their PATH, and the stores, the lake and
the file CONFIG at the same paths. Settings and paths are in that file, credentials in the workers' environment.

Exit codes: 0 is success. 3 means that a job ran and found a problem: later tasks continue, and `verdict` fails at the
end, with the names of the jobs. 1 is often a transient error, so the task is retried. 2 (wrong configuration) and 4
(another run was first, or a store is not the one that was archived) are permanent, so the task fails at once. The
archive runs whatever `guard` finds, because archiving is the remedy. `maintain`, which deletes data, runs only after an
audit that found no problem.
"""

from __future__ import annotations

import subprocess

import pendulum
from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException

CONFIG = "/etc/commitlake.toml"
COMMANDS = {
    "guard": ["--format", "csv"],
    "archive": ["--quiet"],
    "audit": ["--quiet"],
    "maintain": ["--quiet"],
}
FOUND = 3
FAILED = 1


def run(job: str) -> int:
    """Run a job, and return 0 or 3; for other codes, raise an error that Airflow retries, or one that it does not."""
    code = subprocess.run(["commitlake", job, *COMMANDS[job], "--config", CONFIG], check=False).returncode
    if code in {0, FOUND}:
        return code
    if code == FAILED or code < 0:
        raise AirflowException(f"commitlake {job} ended with {code}")
    raise AirflowFailException(f"commitlake {job} ended with {code}: it will not pass by itself")


def wrong_jobs(codes: dict[str, int | None]) -> list[str]:
    """Return the jobs that found a problem or failed. A failed job has no code, nor has a maintain that was skipped."""
    forbidden = {"maintain"} if codes["audit"] != 0 else set()
    return [job for job, code in codes.items() if code == FOUND or (code is None and job not in forbidden)]


@dag(
    schedule="30 1 * * *",  # brokers delete at 04 by default; the time zone is that of start_date
    start_date=pendulum.datetime(2026, 1, 1, tz="Asia/Shanghai"),
    catchup=False,  # one run archives all new messages, even those of several nights
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": pendulum.duration(minutes=5)},
    tags=["commitlake"],
)
def commitlake_nightly() -> None:
    """Archive new messages, and maintain the lake."""

    @task
    def guard() -> int:
        return run("guard")

    @task(trigger_rule="all_done")
    def archive() -> int:
        return run("archive")

    @task
    def audit() -> int:
        return run("audit")

    @task
    def maintain(audited: int) -> int:
        if audited == FOUND:
            raise AirflowSkipException("the audit found something: nothing is deleted before somebody has looked")
        return run("maintain")

    @task(trigger_rule="all_done")
    def verdict(codes: dict[str, int | None]) -> None:  # not **codes, to which Airflow would add its context
        if wrong := wrong_jobs(codes):
            raise AirflowFailException(f"look at the logs of: {', '.join(wrong)}")

    guarded, archived, audited = guard(), archive(), audit()
    maintained = maintain(audited)
    guarded >> archived >> audited
    verdict({"guard": guarded, "archive": archived, "audit": audited, "maintain": maintained})


commitlake_nightly()
