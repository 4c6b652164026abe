"""The program of a driver in a cluster: it runs the job that `jobs.launch.cluster_job` has sent.

YARN starts it in the application master. The job's arguments and environment come as a file, which only its owner can
read, because others can read a command line, and YARN would replace `{{…}}` in it. Standard output and standard error
are sent to the machine on which the user waits.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

FILE = "commitlake-job.json"
"""Name of the file with the job, in the driver's working folder."""


def main() -> int:
    """Run the job, and return its exit code."""
    job = json.loads(Path(FILE).read_text(encoding="ascii"))
    os.environ.update(job["environment"])
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master yarn pyspark-shell"  # tasks run on other machines
    if job["settings"] is not None:
        Path("commitlake.toml").write_text(job["settings"], encoding="utf-8")
        os.environ["XDG_CONFIG_HOME"] = str(Path.cwd())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 (a descriptor)
        os.dup2(nothing.fileno(), 0)
    from commitlake.connectors.spark.classic_session import connect_to_driver_jvm, end_session
    from commitlake.connectors.spark.driver_output import OutputSender
    from commitlake.connectors.spark.hadoop_folder import HadoopFolder

    sender = OutputSender(HadoopFolder(connect_to_driver_jvm(), job["output"]))
    code = 1
    try:
        code = _run_job(job["arguments"])
        end_session(code)
    finally:
        _flush_output_streams()
        sender.close(code)
    return code


def _run_job(arguments: list[str]) -> int:
    from commitlake.jobs.cli import main as cli

    try:
        return cli.main(arguments, on_spark=True)
    except SystemExit as error:  # --help, or wrong usage
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1


def _flush_output_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


if __name__ == "__main__":
    exit_code = main()
    # Without the end of the interpreter, as every job: threads of Arrow or Delta could abort it.
    os._exit(exit_code)
