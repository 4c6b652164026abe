"""The command `commitlake`: find the job, import it, and run it.

This module imports nothing slow before `jobs.cli.process` handles signals. Python itself handles a SIGINT that arrives
earlier, while the interpreter starts: it prints a traceback. `spark-submit.sh` therefore blocks signals, where the
system can, and `jobs.cli.process` handles blocked signals as soon as it is ready.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar

JOBS = {
    "demo": "run a small shop on a broker, archive its messages, and look at the result",
    "archive": "copy new messages from broker stores into the lake",
    "audit": "compare archived messages with stores, packs and HBase, by window",
    "verify": "look for damage in a store, and explain its cause and repair",
    "rebuild": "rebuild a store's queues and index from its log, or salvage a damaged log",
    "restore": "create a store that a broker can start from, as it was at any time",
    "query": "query the lake by topic, key, id, time or SQL",
    "lineage": "show what happened to an order: a tree, a picture, its consumers",
    "journeys": "show the paths of all keys over topics, times between topics, and keys that do not fit",
    "topics": "keep a typed table for each configured topic, with columns instead of bodies",
    "tps": "show messages and bytes per second of any past time, by topic, queue, tag or producer",
    "replay": "send archived messages again, in order, at a chosen pace, each exactly once",
    "dlq": "group dead letters by cause, export them, send them again and track the result",
    "offsets": "show the offsets that a group had, or needs to consume from a time, and set them",
    "dump": "print a store's records, queues or index as JSON lines",
    "lag": "show how far consumer groups are behind, now or at a past time",
    "metrics": "export the lag of consumer groups for Prometheus, as a file or over HTTP",
    "snapshot": "save the offsets of consumer groups, from a store or a live broker",
    "ship": "copy a broker's store to an object store or a folder, while the broker runs",
    "guard": "show which segments a broker will delete, when, and whether they are archived",
    "erase": "delete messages from the lake permanently, by key or id, and prove it",
    "evidence": "create a key, and check the signed evidence of runs, audits and erasures",
    "catalog": "register a lake in Unity Catalog, so that catalog.schema names it",
    "publish": "publish the lake's tables as Iceberg tables, over the same data files",
    "maintain": "compact small files, delete old data, clean up",
    "broker": "run a small broker and name server that RocketMQ's clients use",
    "doctor": "check Python, Java, jars, disks and servers, and name what is missing",
    "completion": "print a completion script for bash, zsh or fish",
    "explain": "explain what a read of a store would read, and what it would skip",
}


_ON_SPARK: ContextVar[bool] = ContextVar("on_spark", default=False)


def is_on_spark() -> bool:
    """Return True if the running job was started by `main` with `on_spark`."""
    return _ON_SPARK.get()


def main(argv: Sequence[str] | None = None, *, on_spark: bool = False) -> int:
    """Run the job that the command line names: `commitlake JOB [OPTION ...]`.

    Args:
        argv: the job and its arguments. By default those of this process, and signals then end it as described in
            `jobs.cli.process`.
        on_spark: True for `spark-submit.sh`, a driver in a cluster, and a task of Databricks: the jobs that work on
            whole stores (`archive`, `audit`, `verify`, `rebuild`) then run on Spark without `--spark`.

    Returns:
        The job's exit code, or 2 if there is no such job.
    """
    if argv is None:
        return run_as_process(lambda: main(sys.argv[1:]))
    import importlib

    from commitlake.jobs.cli.process import set_command_name
    from commitlake.jobs.cli.python_garbage_collection import garbage_collection_off

    arguments = list(argv)
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(usage_text())
            return 0
        case ["--version", *_]:
            from importlib.metadata import version

            print(f"commitlake {version('commitlake')}")
            return 0
        case [name, *rest] if name in JOBS:
            set_command_name(f"commitlake {name}")
            token = _ON_SPARK.set(on_spark)
            try:
                with garbage_collection_off():
                    module = importlib.import_module(f"commitlake.jobs.{name}.command")
                return int(module.main(rest))
            except ModuleNotFoundError as error:
                return _report_missing_package(f"commitlake {name}", error)
            finally:
                _ON_SPARK.reset(token)
    from commitlake.connectors.printable import escape_line

    shown = escape_line(repr(arguments[0]))
    print(f"commitlake: error: there is no job {shown}.{_suggest_job(arguments[0])}", file=sys.stderr)
    print("  commitlake --help lists the jobs", file=sys.stderr)
    return 2


def _report_missing_package(prog: str, error: ModuleNotFoundError) -> int:
    """If an import failed because of a missing optional package, print that and return the exit code; else re-raise."""
    from commitlake.jobs.cli.missing_packages import find_missing_package

    missing = find_missing_package(error)
    if missing is None:
        raise error
    print(f"{prog}: error: {missing}\n  {missing.hint}", file=sys.stderr)
    return int(missing.exit_code)


def run_as_process(command: Callable[[], int]) -> int:
    """Run a command as the main command of this process, and end the process with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # otherwise a SIGINT during the next import prints a traceback
    from commitlake.jobs.cli.process import run_process

    return run_process(command)


def job_help_lines() -> list[str]:
    """Return a line for each job, as `commitlake --help` and `spark-submit.sh --help` show them."""
    width = max(len(name) for name in JOBS)
    return [f"  {name.ljust(width)}  {purpose}" for name, purpose in JOBS.items()]


def usage_text() -> str:
    """Return the text of `commitlake --help`."""
    jobs = "\n".join(job_help_lines())
    return (
        "usage: commitlake JOB [arguments]\n\n"
        "Message broker logs as tables: archive, query and check what RocketMQ, BoltMQ and JMQ wrote.\n\n"
        f"jobs:\n{jobs}\n\n"
        "No job but demo starts Spark, or needs Java, unless --spark is given.\n"
        "commitlake JOB --help shows a job's arguments, with examples.\n"
        "commitlake --version prints the version.\n\n"
        "exit codes: 0 success, 1 failed (retry), 2 wrong usage, path or lake, 3 damage, a gap or a difference found,\n"
        "4 refused, 130 interrupted, 141 standard output was closed, 143 ended by SIGTERM"
    )


def _suggest_job(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, JOBS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


if __name__ == "__main__":
    sys.exit(main())
