"""The command `commitlake`: finds the job, imports it, and hands over. It imports nothing else, to start at once."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence

JOBS = {
    "demo": "fill a small shop's broker, archive it, and look at the result",
    "archive": "take what is new in broker stores into the lake",
    "audit": "compare what was archived with stores, packs and HBase, window by window",
    "verify": "look for all that is wrong in a store, tell why, and what to do; --local needs no Spark",
    "rebuild": "make a store's queues and index again from its log, or salvage a damaged one; --local needs no Spark",
    "restore": "make a store that a broker starts from, out of the lake, as it was at any time; needs no Spark",
    "query": "ask the lake: by topic, key, id, time or SQL; starts without a JVM",
    "dump": "print a store's records, queues or index as JSON lines; needs no Spark",
    "guard": "tell which segments a broker will delete, when, and whether they are archived",
    "maintain": "merge small files, drop what is old, clean up; needs no Spark",
    "broker": "run a small broker and name server that RocketMQ's clients use; needs no Spark",
    "explain": "tell what a read of a store would read, and what it would leave out; needs no Spark",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake JOB …`; the job's exit code, or 2 where there is no such job."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(usage())
            return 0
        case ["--version", *_]:
            print(f"commitlake {importlib.metadata.version('commitlake')}")
            return 0
        case [name, *rest] if name in JOBS:
            return int(importlib.import_module(f"jobs.{name}").main(rest))
    print(f"commitlake: error: there is no job {arguments[0]!r}.{_suggestion(arguments[0])}", file=sys.stderr)
    print("  commitlake --help lists the jobs", file=sys.stderr)
    return 2


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
        "exit codes: 0 well, 1 failed, 2 wrong usage or path, 3 found damage or loss, 4 refused, 130 interrupted"
    )


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, JOBS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


if __name__ == "__main__":
    sys.exit(main())
