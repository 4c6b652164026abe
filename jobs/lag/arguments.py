"""What the commands that measure lag have in common: whether it is that of a lake or of stores."""

from __future__ import annotations

import argparse

from commitlake.jobs.cli.broker_conf import add_broker_conf_argument
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument
from commitlake.jobs.cli.places import BODIES_HELP, add_s3_arguments


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--lake` and `--store`, one of which must be given, and what goes with them."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--lake", metavar="PLACE", help="the lake: a folder, or s3://bucket/prefix")
    source.add_argument("--store", metavar="PATH", help=f"a store folder (the one that holds {FOLDERS}), or a glob")
    parser.add_argument("--bodies", metavar="PLACE", help=BODIES_HELP)
    add_s3_arguments(parser)
    add_broker_conf_argument(parser)
    add_layout_argument(parser)
