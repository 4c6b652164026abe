"""Show which segments a broker will delete, when, and whether they are archived by then.

    commitlake guard --store /data/rocketmq/store --lake /data/lake --within 12h

Reads stores, their disks, RocketMQ's broker.conf or BoltMQ's broker.toml, and the lake's log. Writes only its report: a
row for each segment on standard output, and explanations on standard error. It takes about a second, and never starts
Spark. Exit codes: 0 if all segments exist long enough to be archived; 2 for a wrong store, lake, settings file or
option; 3 if a segment would be deleted unarchived within the given time, or is lost; 4 if a store is not the one that
was archived.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.html import add_html_argument
from commitlake.jobs.cli.lake_names import warn_of_unknown_broker
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.places import lake_of
from commitlake.jobs.cli.s3_arguments import add_s3_arguments
from commitlake.jobs.cli.store_arguments import positive_decimal
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.advice import Places
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.lake.archive_log import StoreProgress
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.retention.watch import WatchedStore

DESCRIPTION = (
    "Show for each store which segments the broker will delete, when and why, and whether they are archived. The rules "
    "are the broker's own: age, hour of the day, and disk usage; its settings are read from RocketMQ's broker.conf or "
    "BoltMQ's broker.toml. Times are the earliest possible ones, in UTC."
)
EXAMPLES = (
    ("guard --store /data/rocketmq/store --lake /data/lake", "a broker with default settings"),
    ("guard --store '/mnt/{broker}/store' --broker-conf '/mnt/{broker}/broker.conf' --lake lake",
     "a cluster in which each broker has its own settings"),
    ("guard --store /data/rocketmq/store --lake /data/lake --html guard.html", "also write an HTML page"),
    ("guard --store /data/rocketmq/store --lake lake --within 2h --quiet", "from cron: print only problems"),
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("guard", DESCRIPTION, EXAMPLES)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker"
    )
    parser.add_argument("--store", required=True, metavar="PATH", help=store_help)
    parser.add_argument("--lake", required=True, metavar="PLACE",
                        help="the lake: a folder, which need not exist yet, or s3://bucket/prefix")  # fmt: skip
    add_s3_arguments(parser)
    parser.add_argument("--broker", action=Once, help="the store's name (default: the folder's name)")
    add_layout_argument(parser)
    parser.add_argument("--broker-conf", metavar="FILE",
                        help="the broker's settings, RocketMQ's broker.conf or BoltMQ's broker.toml ({broker} stands "
                             "for the store's name); default: the broker's defaults")  # fmt: skip
    parser.add_argument("--within", type=parse_duration, default="12h", metavar="TIME",
                        help="warn of unarchived segments that may be deleted within this time: 90m, 12h, 2d (default: "
                             "12h)")  # fmt: skip
    parser.add_argument("--broker-version", type=int, choices=(4, 5), default=5, metavar="4|5",
                        help="RocketMQ's major version (default: 5)")  # fmt: skip
    parser.add_argument("--broker-time-zone", type=_time_zone, metavar="ZONE",
                        help="time zone of deleteWhen, as Asia/Shanghai (default: this machine's)")  # fmt: skip
    parser.add_argument("--clean-forcibly-ratio", type=_ratio, metavar="RATIO",
                        help="the broker's -Drocketmq.broker.diskSpaceCleanForciblyRatio")  # fmt: skip
    parser.add_argument("--warning-level-ratio", type=_ratio, metavar="RATIO",
                        help="the broker's -Drocketmq.broker.diskSpaceWarningLevelRatio")  # fmt: skip
    add_format_argument(parser)
    add_html_argument(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Check the stores, and print a report."""
    from commitlake.jobs.guard.report import disk_lines, print_report, rule_lines, summary, verdict_of, warning_lines

    now = datetime.datetime.now(datetime.UTC)
    lake = lake_of(arguments)
    watch = _watch if arguments.html is None else _watch_and_write_page
    progress, watched = watch(arguments, lake, now)
    print_report(arguments.output, watched, now)
    for line in warning_lines(watched, _places(arguments, lake, watched)):
        print_line(line)
    if not arguments.quiet:
        lines = [*rule_lines(watched), *disk_lines(watched, now), summary(watched, arguments.within)]
        if progress is None:
            lines.insert(0, f"there is no lake in {arguments.lake} yet: nothing is archived")
        for each in lines:
            print_line(each)
    return verdict_of(watched).exit_code


def _watch(
    arguments: argparse.Namespace, lake: Lake, now: datetime.datetime
) -> tuple[Mapping[str, StoreProgress] | None, list[WatchedStore]]:
    """Return the archived offset of each store (None without a lake), and the expected fate of the stores' segments."""
    from commitlake.connectors.formats.engine.shipped import read_shipped_manifest, resolve_filesystem
    from commitlake.connectors.formats.engine.stores import find_stores
    from commitlake.jobs.cli.broker_name import broker_name
    from commitlake.jobs.guard.rules import read_rules
    from commitlake.pipelines.retention.watch import watch_stores

    progress = _read_progress(lake)
    layouts = layout_of(arguments).formats
    name = broker_name(arguments.store, arguments.broker, arguments.broker_conf, progress or {}, layouts)
    stores = find_stores(arguments.store, name.name, layouts)
    for store in stores:
        filesystem, root = resolve_filesystem(store.root)
        if read_shipped_manifest(filesystem, root.rsplit("/", 1)[0]) is not None:
            raise JobError(
                f"{store.root} is a copy that 'commitlake ship' made, from which no broker deletes segments",
                "run guard on the broker's machine, with the broker's own store",
            )
    warn_of_unknown_broker("commitlake guard", arguments.broker, progress or ())
    return progress, watch_stores(stores, progress or {}, read_rules(arguments, now), now, arguments.within)


def _watch_and_write_page(
    arguments: argparse.Namespace, lake: Lake, now: datetime.datetime
) -> tuple[Mapping[str, StoreProgress] | None, list[WatchedStore]]:
    """Watch the stores, and write the page that the arguments name."""
    from commitlake.jobs.guard.page import TITLE, stores_page
    from commitlake.jobs.pages.output import failure_page, page_file

    file = page_file(arguments.html)
    assert file is not None
    facts = [("Lake", lake.root), ("Store", arguments.store)]
    with failure_page(file, "guard", TITLE, facts, lake):
        progress, watched = _watch(arguments, lake, now)
        places = _places(arguments, lake, watched)
        file.write(stores_page(watched, lake, arguments.within, now, places=places, is_lake=progress is not None))
    return progress, watched


def _places(arguments: argparse.Namespace, lake: Lake, watched: Sequence[WatchedStore]) -> Places:
    """Return the places of the advice."""
    named = ["--broker", watched[0].broker] if len(watched) == 1 else []
    return {"store": arguments.store, "lake": lake.root, "named": named}


def _read_progress(lake: Lake) -> dict[str, StoreProgress] | None:
    """Return the archived offset of each store, or None if there is no lake yet."""
    from commitlake.connectors.lake.archive_log import read_last_commit

    folder = Path(lake.root)
    if lake.s3 is None and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return None
    lake.table("messages")  # raises an error if this is not a lake
    commit = read_last_commit(lake.uri("messages"))
    return {} if commit is None else dict(commit.stores)


def _time_zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time zone: expected one like UTC or Asia/Shanghai"
        ) from None


def _ratio(text: str) -> float:
    return positive_decimal(text, "ratio: expected more than 0, at most 1, as in 0.85", most=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake guard`."""
    return run_job(build_parser(), job, argv)
