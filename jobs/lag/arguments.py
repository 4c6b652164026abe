"""Arguments of commands that read a lake or stores, and arguments of those that measure lag."""

from __future__ import annotations

import argparse

from commitlake.jobs.cli.broker_conf import add_broker_conf_argument
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument
from commitlake.jobs.cli.places import BODIES_HELP
from commitlake.jobs.cli.s3_arguments import add_s3_arguments


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--lake` and `--store`, one of which must be given, and the options that belong to them."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--lake", metavar="PLACE", help="the lake: a folder, s3://bucket/prefix, or catalog.schema")
    source.add_argument("--store", metavar="PATH", help=f"a store folder (the one that holds {FOLDERS}), or a glob")
    add_s3_arguments(parser)
    add_layout_argument(parser)


def add_lag_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `add_source_arguments`, and the other options of a lag measurement."""
    add_source_arguments(parser)
    parser.add_argument("--bodies", metavar="PLACE", help=BODIES_HELP)
    watch_help = (
        "with --lake: time over which the movement of groups is watched, for rates, the time to catch up, and the "
        "verdicts slow, stalled and rewound; if snapshots are rarer, the one before is compared (default: 5m)"
    )
    parser.add_argument("--watch", type=parse_duration, default="5m", metavar="TIME", help=watch_help)
    add_broker_conf_argument(parser)
