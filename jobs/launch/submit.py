"""The program that `spark-submit.sh` starts: a job, with options for spark-submit before its name.

    ./spark-submit.sh --master spark://host:7077 --driver-memory 4g archive --store /data/store --lake /data/lake

The job runs in this process. Spark's launcher, spark-submit, runs in a process that is started when the job requests a
session. (With spark-submit as the parent, standard error would be printed to standard output, and there would be no
terminal for a progress bar.) `archive`, `audit`, `verify` and `rebuild` request one unless `--local` is
given; the other jobs only with `--spark`. A job that never requests a session, such as `dump` or `query`, starts no
JVM. Nor does `--remote URL`, which names a server of Spark Connect.

With `--master yarn --deploy-mode cluster`, the job runs in the cluster instead; see `cluster_job`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from commitlake.connectors.spark.submit_arguments import FLAGS, option_pairs
from commitlake.jobs.cli import main as cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that the command line names, and return its exit code; 2 if no job is named."""
    if argv is None:
        return cli.run_as_process(lambda: main(sys.argv[1:]))
    import shlex

    options, command = split_command_line(argv)
    if not command:
        from commitlake.connectors.printable import escape_line

        shown = escape_line(" ".join(options))
        return _print_usage_error(f"no job is named after {shown}", "./spark-submit.sh --help lists the jobs")
    if problem := _spark_connect_problem(options):
        return _print_usage_error(problem, "see docs/how-to/spark.md, With Spark Connect")
    if remote := _option_values(options, "--remote"):
        os.environ["SPARK_REMOTE"] = remote[0]
    elif options:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
    if _is_cluster_mode(options):
        return _run_in_cluster(options, command)
    return cli.main(command, on_spark=True)


def _is_cluster_mode(options: Sequence[str]) -> bool:
    """Return whether the driver runs in the cluster, by the last `--deploy-mode` or else by `--conf` settings."""
    if modes := _option_values(options, "--deploy-mode"):
        return modes[-1] == "cluster"
    given = [*_option_values(options, "--conf"), *_option_values(options, "-c")]
    modes = [value.partition("=")[2] for value in given if value.startswith("spark.submit.deployMode=")]
    return modes[-1:] == ["cluster"]


def _run_in_cluster(options: Sequence[str], command: Sequence[str]) -> int:
    from commitlake.connectors.spark.spark_defaults import configuration_folder, read_defaults
    from commitlake.connectors.spark.submit_arguments import is_yarn_master, parse_master

    defaults = read_defaults(configuration_folder())
    if is_yarn_master(options, defaults):
        from commitlake.jobs.launch.cluster_job import run_on_yarn

        return run_on_yarn(options, command)
    found = parse_master(options) or defaults.get("spark.master", "none")
    if found.startswith("k8s://"):
        cure = "run the job itself in a pod, with --deploy-mode client: see docs/how-to/kubernetes.md"
        return _print_usage_error(
            "--deploy-mode cluster: Kubernetes gives neither output nor exit code of the job", cure
        )
    cure = "with another master, leave --deploy-mode out: executors may be anywhere"
    return _print_usage_error(f"--deploy-mode cluster: expected --master yarn, found {found}", cure)


def _spark_connect_problem(options: Sequence[str]) -> str | None:
    """Return an error message, without secrets, if the options for Spark Connect cannot be used, else None."""
    remote = _option_values(options, "--remote")
    names = [option.partition("=")[0] for option in options if option.startswith("-")]
    if any(
        value.startswith("spark.remote=")
        for value in (*_option_values(options, "--conf"), *_option_values(options, "-c"))
    ):
        return "--conf spark.remote: expected --remote URL, or the environment variable SPARK_REMOTE"
    if any("token=" in url.lower() for url in remote):
        return "--remote: others can read a token on the command line: put the URL into SPARK_REMOTE in the environment"
    if remote and (names != ["--remote"] or not remote[0]):
        return f"--remote: expected one URL and no other option of spark-submit, found {', '.join(names)}"
    if not remote and options and os.environ.get("SPARK_REMOTE"):
        return f"SPARK_REMOTE is set: expected no option of spark-submit, found {', '.join(names)}"
    return None


def _print_usage_error(message: str, hint: str) -> int:
    print(f"spark-submit.sh: error: {message}", file=sys.stderr)
    print(f"  {hint}", file=sys.stderr)
    return 2


def split_command_line(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into options of spark-submit, and the job with its arguments.

    >>> split_command_line(["--master", "local[2]", "-v", "--conf=a=b", "query", "--lake", "x"])
    (['--master', 'local[2]', '-v', '--conf=a=b'], ['query', '--lake', 'x'])
    """
    end = 0
    while end < len(argv) and argv[end].startswith("-"):
        takes_next = argv[end] not in FLAGS and "=" not in argv[end]
        end += 2 if takes_next else 1
    return list(argv[:end]), list(argv[end:])


def _option_values(options: Sequence[str], name: str) -> list[str]:
    """Return all values given for a spark-submit option."""
    return [value for option, *values in option_pairs(options) if option == name for value in values]


if __name__ == "__main__":
    sys.exit(main())
