"""The command `commitlake`: find the job, import it, and run it.

This module imports nothing slow before `jobs.cli.process` handles signals. Python itself handles a SIGINT that arrives
earlier, while the interpreter starts: it prints a traceback. `spark-submit.sh` therefore blocks signals, where the
system can, and `jobs.cli.process` takes those that have come as soon as it is ready.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

JOBS = {
    "demo": "fill a small shop's broker, archive it, and look at the result",
    "archive": "take what is new in broker stores into the lake",
    "audit": "compare what was archived with stores, packs and HBase, window by window",
    "verify": "look for all that is wrong in a store, tell why, and what to do; --local needs no Spark",
    "rebuild": "make a store's queues and index again from its log, or salvage a damaged one; --local needs no Spark",
    "restore": "make a store that a broker starts from, out of the lake, as it was at any time; needs no Spark",
    "query": "ask the lake: by topic, key, id, time or SQL; starts without a JVM",
    "lineage": "tell what happened to an order: a tree, a picture, who has consumed it; starts without a JVM",
    "tps": "tell messages and bytes per second of any past time, by topic, queue, tag or producer; needs no Spark",
    "replay": "send archived messages again, in order, at a pace, each of them once; needs no Spark",
    "dlq": "group dead letters by cause, export them, send them again and follow them; needs no Spark",
    "offsets": "tell the offsets a group had, or needs to consume from a time, and set them; needs no Spark",
    "dump": "print a store's records, queues or index as JSON lines; needs no Spark",
    "lag": "tell how far consumer groups are behind, now or at a past time; needs no Spark",
    "metrics": "give Prometheus the lag of consumer groups, as a file or over HTTP; needs no Spark",
    "snapshot": "keep how far consumer groups have come, from a store or a live broker; needs no Spark",
    "guard": "tell which segments a broker will delete, when, and whether they are archived",
    "erase": "take messages out of the lake for good, by key or id, and prove it; needs no Spark",
    "evidence": "make a key, and tell whether signed evidence of runs, audits and erasures is whole; needs no Spark",
    "maintain": "merge small files, drop what is old, clean up; needs no Spark",
    "broker": "run a small broker and name server that RocketMQ's clients use; needs no Spark",
    "doctor": "check Python, Java, jars, disks and servers, and say what is missing; needs no Spark",
    "completion": "print a script that completes commands in bash, zsh or fish; needs no Spark",
    "explain": "tell what a read of a store would read, and what it would leave out; needs no Spark",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake JOB …`.

    Args:
        argv: the job and its arguments. Where not given, this process's own: signals then end it as `jobs.cli.process`
            says.

    Returns:
        The job's exit code, or 2 where there is no such job.
    """
    if argv is None:
        return run_as_process(lambda: main(sys.argv[1:]))
    import importlib

    from commitlake.jobs.cli.collector import collector_off
    from commitlake.jobs.cli.process import set_command_name

    arguments = list(argv)
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(usage())
            return 0
        case ["--version", *_]:
            from importlib.metadata import version

            print(f"commitlake {version('commitlake')}")
            return 0
        case [name, *rest] if name in JOBS:
            set_command_name(f"commitlake {name}")
            with collector_off():
                module = importlib.import_module(f"commitlake.jobs.{name}.command")
            return int(module.main(rest))
    from commitlake.connectors.printable import printable_line

    shown = printable_line(repr(arguments[0]))
    print(f"commitlake: error: there is no job {shown}.{_suggestion(arguments[0])}", file=sys.stderr)
    print("  commitlake --help lists the jobs", file=sys.stderr)
    return 2


def run_as_process(command: Callable[[], int]) -> int:
    """Run a command as this process's own, as `jobs.cli.process.run_process` does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # else a SIGINT during the next import prints a traceback
    from commitlake.jobs.cli.process import run_process

    return run_process(command)


def job_lines() -> list[str]:
    """A line for each job, as `commitlake --help` and `spark-submit.sh --help` show them."""
    width = max(len(name) for name in JOBS)
    return [f"  {name.ljust(width)}  {purpose}" for name, purpose in JOBS.items()]


def usage() -> str:
    """The text of `commitlake --help`."""
    jobs = "\n".join(job_lines())
    return (
        "usage: commitlake JOB [arguments]\n\n"
        "Message broker logs as tables: archive, query and check what RocketMQ wrote.\n\n"
        f"jobs:\n{jobs}\n\n"
        "commitlake JOB --help tells a job's arguments, with examples.\n"
        "commitlake --version tells the version.\n\n"
        "exit codes: 0 well, 1 failed, 2 wrong usage or path, 3 found damage or loss, 4 refused, 130 interrupted,\n"
        "141 standard output was closed, 143 ended by SIGTERM"
    )


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, JOBS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


if __name__ == "__main__":
    sys.exit(main())
