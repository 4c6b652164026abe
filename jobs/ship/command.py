"""Copy a broker's store to an object store, HDFS or a folder, from beside the broker.

    commitlake ship --store /data/rocketmq/store --to s3://logs/broker-a

A small process: no Spark, no JVM, about 100 MB of memory, a low priority for the CPU (nice 10) and the lowest one for
the disk. It only reads the store. Complete segments and new records of the newest one are sent as parts. A part of less
than 8 MiB may be sent again, in a larger one. Azure and HDFS cannot join parts: there, the agent reads them back when
a segment is complete, and sends the segment again. A manifest in the target says what is complete, so that a reader
sees a prefix of the log without a hole. A run that was killed continues where it ended. Jobs read the copy like a
store: `archive --store s3://logs/broker-a`.

Exit codes: 0; 1 if the target cannot be written now (with --once; otherwise the agent waits); 2 for a wrong store,
target or option, or a target that refuses this user; 3 if parts of the log were gone before they were shipped, or files
were skipped; 4 if another agent ships to the same target, or the target has the copy of another store.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
from collections.abc import Sequence
from pathlib import Path

from commitlake.jobs.cli.broker_conf import read_store_conf
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import FOLDERS
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.s3_arguments import add_s3_arguments
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.numbers import parse_decimal

DESCRIPTION = (
    "Copy a broker's store to an object store or a folder, from beside the broker: its log with the newest records, "
    "queues, indexes and settings. The agent is a small process with a low priority for the CPU and the lowest one for "
    "the disk, and only reads the store. It sends what is new, continues after a kill where it ended, and checks the "
    "copy in the target. Without --once it follows the broker until it is stopped. Other jobs read the copy as a "
    "store, on other machines."
)
EXAMPLES = (
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a", "follow a broker, as a service"),
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a --once", "ship what is new and end, for cron"),
    ("ship --store /data/jmq/store --to /mnt/backup/jmq-1 --rate 20M", "to a mounted folder, at most 20 MB per second"),
    ("ship --store /data/rocketmq/store --to s3://logs/broker-a --log-only", "only what archive needs"),
    ("ship --store s3://logs/broker-a --to copy --once", "fetch a copy into a folder, for jobs that need one"),
)
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(k|M|G|Ki|Mi|Gi|)B?(?:/s)?")
_FACTORS = {"": 1, "k": 1000, "M": 1000_000, "G": 1000_000_000, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_MIN_RATE = 1000


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("ship", DESCRIPTION, EXAMPLES)
    parser.set_defaults(reports_places=True)  # it checks its other arguments first, and has its own client
    parser.add_argument(
        "--store", required=True, metavar="PATH", help=f"the broker's store, the folder that holds {FOLDERS}; or, with "
        "--once, a copy in an object store or HDFS to fetch"
    )  # fmt: skip
    parser.add_argument(
        "--to", required=True, metavar="PLACE", help="where the copy is kept: s3://bucket/prefix, "
        "gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix, hdfs://host:port/folder, or a "
        "folder; each store needs a place of its own"
    )  # fmt: skip
    parser.add_argument(
        "--broker", action=Once, help="the store's name (default: brokerName in broker.conf beside the store, or "
        "the name of its folder)"
    )  # fmt: skip
    parser.add_argument(
        "--broker-conf",
        metavar="FILE",
        help="the broker's settings file broker.conf, for brokerName and the folders of the log",
    )
    parser.add_argument("--once", action="store_true", help="ship what is there now, and end")
    parser.add_argument(
        "--interval", type=parse_duration, default="5s", metavar="TIME", help="how often to look for new records of "
        "the log (default: 5s)"
    )  # fmt: skip
    parser.add_argument(
        "--files-interval", type=parse_duration, default="1m", metavar="TIME", help="how often to look for changes "
        "of queues, indexes and settings; each changed file costs a request (default: 1m)"
    )  # fmt: skip
    parser.add_argument(
        "--log-only", action="store_true", help="ship only the log: archive needs nothing else, and rebuild can create "
        "queues and indexes from it"
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=parse_rate, metavar="RATE", help="send at most this many bytes per second, as in 20MiB/s, "
        "500k or 20M (default: as fast as possible)"
    )  # fmt: skip
    add_s3_arguments(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Ship once, or until the agent is stopped."""
    for name in ("interval", "files_interval"):
        if getattr(arguments, name) <= datetime.timedelta(0):
            raise JobError(f"--{name.replace('_', '-')}: expected more than 0 seconds")
    from commitlake.connectors.storage.opening import is_storage
    from commitlake.jobs.ship.run import fetch_store, ship_store

    if is_storage(arguments.store):
        if not arguments.once or is_storage(arguments.to):
            raise JobError(
                f"--store {arguments.store}: expected the broker's own folder on this machine",
                "a copy in an object store or HDFS can be fetched into a folder, with --once",
            )
        return fetch_store(arguments)
    return ship_store(arguments, store_name(arguments))


def store_name(arguments: argparse.Namespace) -> str:
    """Return the name of the store: from the options, a `broker.conf` beside the store, or the name of its folder.

    Raises:
        JobError: if it cannot be the name of a store in a lake.
    """
    from commitlake.connectors.lake.packs.names import fault_of_name, fits_folder
    from commitlake.jobs.cli.names_beside import NAME_HINT, names_beside

    root = Path(os.path.abspath(arguments.store))  # noqa: PTH100 (it does not follow links, as other jobs)
    if root.name in {"commitlog", "journal"}:
        root = root.parent
    parts = [part for part in root.parts if part != "/"] or ["store"]
    folder = parts[-2] if len(parts) > 1 and parts[-1] == "store" else parts[-1]
    named = arguments.broker
    if named is None and arguments.broker_conf:
        named = read_store_conf(arguments.broker_conf, folder).broker_name
    if named is None and not arguments.broker_conf:
        named = next((name for _, name in names_beside(root)), None)
    name = str(folder if named is None else named)
    if fault := fault_of_name(name):
        raise JobError(f"the store's name: {fault}", NAME_HINT)
    if not fits_folder(name):
        raise JobError(f"the store's name {name[:40]!r} is too long for a lake", NAME_HINT)
    return name


def parse_rate(text: str) -> float:
    """Parse bytes per second: a number with k, M, G, Ki, Mi or Gi.

    Raises:
        argparse.ArgumentTypeError: if it is not such a number, or less than 1 kB per second.
    """
    match = _RATE.fullmatch(text)
    number = parse_decimal(match[1]) if match else None
    rate = 0.0 if match is None or number is None else number * _FACTORS[match[2]]
    if rate < _MIN_RATE:
        raise argparse.ArgumentTypeError(
            f"{text[:100]!r} is not a rate: expected bytes per second, at least 1k, as in 20MiB/s, 500k or 20M"
        )
    return rate


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake ship`."""
    return run_job(build_parser(), job, argv)
