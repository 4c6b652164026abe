"""The nightly run as an Airflow DAG (2.7 or later): guard -> archive -> audit -> maintain -> verdict.

Copy it into the folder of DAGs. The workers need the command `commitlake` on their PATH, and the stores, the lake and
the file CONFIG at the same places; settings and paths are in that file, credentials in the workers' environment.

Exit codes: 0 is a success. 3 means that a job ran and found something: later tasks continue, and `verdict` fails
at the end, with the names of the jobs. 1 may pass by itself: the task is tried again. 2 (set up wrongly) and 4 (another
run was first, or a store is not the one that was archived) do not: the task fails at once. `guard` never holds up the
archive, which is what helps; `maintain`, which deletes, only follows an audit that found nothing wrong.
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
    """Run a job: 0 or 3, or an error that Airflow tries again or not."""
    code = subprocess.run(["commitlake", job, *COMMANDS[job], "--config", CONFIG], check=False).returncode
    if code in {0, FOUND}:
        return code
    if code == FAILED or code < 0:
        raise AirflowException(f"commitlake {job} ended with {code}")
    raise AirflowFailException(f"commitlake {job} ended with {code}: it will not pass by itself")


def wrong_jobs(codes: dict[str, int | None]) -> list[str]:
    """The jobs that found something or failed; those have no code, and nor has a maintain that the audit forbade."""
    forbidden = {"maintain"} if codes["audit"] != 0 else set()
    return [job for job, code in codes.items() if code == FOUND or (code is None and job not in forbidden)]


@dag(
    schedule="30 1 * * *",  # brokers delete at 04 by default; the time zone is that of start_date
    start_date=pendulum.datetime(2026, 1, 1, tz="Asia/Shanghai"),
    catchup=False,  # one run takes all that is new, however many nights it is
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": pendulum.duration(minutes=5)},
    tags=["commitlake"],
)
def commitlake_nightly() -> None:
    """Archive what is new, and take care of the lake."""

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
    def verdict(**codes: int | None) -> None:
        if wrong := wrong_jobs(codes):
            raise AirflowFailException(f"look at the logs of: {', '.join(wrong)}")

    guarded, archived, audited = guard(), archive(), audit()
    maintained = maintain(audited)
    guarded >> archived >> audited
    verdict(guard=guarded, archive=archived, audit=audited, maintain=maintained)


commitlake_nightly()
