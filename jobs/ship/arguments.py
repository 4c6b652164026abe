"""The options of `ship`."""

from __future__ import annotations

import argparse
import datetime
import re
from dataclasses import dataclass

from commitlake.jobs.arguments.durations import make_duration_parser, parse_duration
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.arguments.store_layout import FOLDERS
from commitlake.jobs.arguments.stores import StoreName
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import flag, option
from commitlake.schemas.layouts.integer_parsing import parse_decimal

_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(k|M|G|Ki|Mi|Gi|)B?(?:/s)?")


_FACTORS = {"": 1, "k": 1000, "M": 1000_000, "G": 1000_000_000, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


_MIN_RATE = 1000


def parse_rate(text: str) -> float:
    """Parse a transfer rate in bytes per second: a number, optionally with k, M, G, Ki, Mi or Gi.

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


@dataclass(frozen=True, kw_only=True)
class ShipOptions(Command, StoreName, S3Arguments, after={StoreName: "to", S3Arguments: "rate"}):
    """Command line options of `ship`."""

    store: str = option(
        f"the broker's store, the folder that holds {FOLDERS}; or, with "
        "--once, a copy in an object store or HDFS to fetch",
        required=True,
        metavar="PATH",
    )
    to: str = option(
        "where the copy is kept: s3://bucket/prefix, "
        "gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix, hdfs://host:port/folder, or a "
        "folder; each store needs a place of its own",
        required=True,
        metavar="PLACE",
    )
    broker_conf: str | None = option(
        "the broker's settings file broker.conf, for brokerName and the folders of the log", metavar="FILE"
    )
    once: bool = flag("ship what is there now, and end")
    interval: datetime.timedelta = option(
        "how often to look for new records of the log (default: 5s)",
        parse=make_duration_parser("1s"),
        default=parse_duration("5s"),
        metavar="TIME",
    )
    files_interval: datetime.timedelta = option(
        "how often to look for changes "
        "of queues, indexes and settings; each changed file costs a request (default: 1m)",
        parse=make_duration_parser("1s"),
        default=parse_duration("1m"),
        metavar="TIME",
    )
    log_only: bool = flag(
        "ship only the log: archive needs nothing else, and rebuild can create queues and indexes from it"
    )
    rate: float | None = option(
        "send at most this many bytes per second, as in 20MiB/s, 500k or 20M (default: as fast as possible)",
        parse=parse_rate,
        metavar="RATE",
    )
