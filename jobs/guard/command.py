"""Show which segments a broker will delete, when, and whether they are archived by then.

    commitlake guard --store /data/rocketmq/store --lake /data/lake --within 12h

Reads stores, their disks, RocketMQ's broker.conf or BoltMQ's broker.toml, and the lake's log. Writes only its report: a
row for each segment on standard output, and explanations on standard error. It takes about a second, and never starts
Spark. Exit codes: 0 if all segments exist long enough to be archived; 2 for a wrong store, lake, settings file or
option; 3 if a segment would be deleted unarchived within the given time, or is lost; 4 if a store is not the one that
was archived.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.s3 import S3Arguments
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument, find_formats
from commitlake.jobs.arguments.stores import StoreName
from commitlake.jobs.arguments.unknown_lake_names import warn_of_unknown_broker
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import option
from commitlake.jobs.guard.arguments import RuleArguments
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.finding_advice import Places

if TYPE_CHECKING:
    from commitlake.connectors.lake.archive_commits import StoreProgress
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.retention.deletion_forecast import WatchedStore

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


@dataclass(frozen=True, kw_only=True)
class Guard(
    Command,
    S3Arguments,
    StoreName,
    LayoutArgument,
    RuleArguments,
    OutputArguments,
    HtmlPageOption,
    after={
        S3Arguments: "lake",
        **dict.fromkeys((StoreName, LayoutArgument, RuleArguments, OutputArguments, HtmlPageOption), "lake"),
    },
):
    """The command `guard`, which shows when the broker will delete segments, and whether these are archived."""

    NAME = "guard"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    store: str = option(
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker",
        required=True,
        metavar="PATH",
    )
    lake: str = option(
        "the lake: a folder, which need not exist yet, or s3://bucket/prefix", required=True, metavar="PLACE"
    )

    def run(self) -> ExitCode:
        """Forecast the deletion of the stores' segments, and print a report."""
        from commitlake.jobs.guard.report import TITLE, guard_report, print_report
        from commitlake.jobs.report.text_blocks import print_notices, print_summary

        now = datetime.datetime.now(datetime.UTC)
        lake = open_lake_argument(self)
        with self.open_page("guard", TITLE, [("Lake", lake.root), ("Store", self.store)], lake) as file:
            progress, watched = _forecast_stores(self, lake, now)
            report = guard_report(
                watched,
                lake,
                self.within,
                now,
                placeholders=_advice_placeholders(self, lake, watched),
                lake_exists=progress is not None,
            )
            if file is not None:
                file.write(report, None if progress is None else lake)
        print_report(self.output, watched, now)
        print_notices(report, "findings", only_critical=self.quiet)
        if not self.quiet:
            print_summary(report, "runs", "disks", "segments")
        return report.verdict.exit_code


def _forecast_stores(
    command: Guard, lake: Lake, now: datetime.datetime
) -> tuple[Mapping[str, StoreProgress] | None, list[WatchedStore]]:
    """Return the archived offset of each store (None without a lake), and forecasts of when segments are deleted."""
    from commitlake.connectors.reading.files.shipped_stores import read_shipped_manifest, resolve_filesystem
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.jobs.arguments.broker_name import choose_broker_name
    from commitlake.jobs.guard.rules import make_rule_reader
    from commitlake.pipelines.retention.deletion_forecast import watch_stores

    progress = _read_progress(lake)
    layouts = find_formats(command)
    name = choose_broker_name(command.store, command.broker, command.broker_conf, progress or {}, layouts)
    stores = find_stores(command.store, name.name, formats=layouts)
    for store in stores:
        filesystem, root = resolve_filesystem(store.root)
        if read_shipped_manifest(filesystem, root.rsplit("/", 1)[0]) is not None:
            raise JobError(
                f"{store.root} is a copy that 'commitlake ship' made: expected a broker's own store, because no "
                "broker deletes segments from a copy",
                "run guard on the broker's machine, with the broker's own store",
            )
    warn_of_unknown_broker("commitlake guard", command.broker, progress or ())
    return progress, watch_stores(stores, progress or {}, make_rule_reader(command, now), now, command.within)


def _advice_placeholders(command: Guard, lake: Lake, watched_stores: Sequence[WatchedStore]) -> Places:
    """Return the values, such as the lake's location, that replace placeholders in commands of the advice."""
    named = ["--broker", watched_stores[0].broker] if len(watched_stores) == 1 else []
    return {"store": command.store, "lake": lake.root, "named": named}


def _read_progress(lake: Lake) -> dict[str, StoreProgress] | None:
    """Return the offset up to which each store is archived, or None if there is no lake yet."""
    from commitlake.connectors.lake.archive_commits import read_last_commit

    folder = Path(lake.root)
    if lake.s3 is None and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return None
    lake.table("messages")  # raises an error if this is not a lake
    commit = read_last_commit(lake)
    return {} if commit is None else dict(commit.stores)


build_parser, main = Guard.parser, Guard.main
