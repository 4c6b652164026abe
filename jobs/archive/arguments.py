"""The options of `archive`."""

from __future__ import annotations

import argparse
import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.evidence_key import EvidenceArgument
from commitlake.jobs.arguments.html_option import HTML_HELP, HtmlPageOption
from commitlake.jobs.arguments.lake_location import LakeArguments
from commitlake.jobs.arguments.runner import ThreadArguments
from commitlake.jobs.arguments.selection import Topics
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument
from commitlake.jobs.arguments.stores import StoreName, declare_broker_option, parse_file_size, positive
from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import (
    Section,
    conflicts_with,
    drop_conflicting_variable,
    flag,
    only_with,
    option,
    overrides,
    repeated,
    requires_one_of,
)
from commitlake.schemas.layouts.integer_parsing import parse_decimal

if TYPE_CHECKING:
    from commitlake.connectors.rocketmq.throttle import RateLimit
    from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource


_RATE = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?) ?(?P<unit>KiB|MiB|GiB)?(/s)?")
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_REQUEST_SECONDS = 10.0
_WHAT_IS_PULLED = (
    "Pulls every message in a queue, including system topics: waiting delayed messages, and transaction messages. It "
    "does not get messages of deleted topics, of queues without read permission, or, from brokers 4.9, the op records "
    "of transactions; the summary counts the latter two."
)
_PULLED = Section("from brokers, without their files", _WHAT_IS_PULLED)


def _parse_rate(text: str) -> RateLimit:
    from commitlake.connectors.rocketmq.throttle import RateLimit

    found = _RATE.fullmatch(text.strip())
    number = parse_decimal(found["number"]) if found else None
    if found is None or not number:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a rate: expected one like 2000/s or 20MiB/s")
    unit = found["unit"]
    return RateLimit(messages=number) if unit is None else RateLimit(bytes=number * _BYTES[unit])


def _parse_name_value_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: expected NAME=VALUE")
    return name, value


@dataclass(frozen=True, kw_only=True)
class PullArguments(Topics, after={Topics: "from_broker"}):
    """Options of an archive that pulls messages from live brokers instead of reading their files."""

    from_broker: str | None = option(
        "instead of --store: pull from all brokers that these name servers know (several with semicolons between), or "
        "only from the one that --broker names; keys and TLS come from the environment, as for replay",
        metavar="HOST:PORT",
        section=_PULLED,
        rules=(
            *conflicts_with("store", hint="leave one of them out"),
            *overrides("broker_conf", "available_now", hint="leave {other} out"),
        ),
    )
    topic: tuple[str, ...] = repeated(
        "only this topic (default: all topics, including the system's)",
        section=_PULLED,
        rules=only_with("from_broker"),
    )
    max_rate: RateLimit | None = option(
        "read at most this much per second from all brokers together: messages as in 2000/s, bytes as in 20MiB/s",
        parse=_parse_rate,
        metavar="RATE",
        section=_PULLED,
        rules=only_with("from_broker"),
    )


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions(
    Command,
    PullArguments,
    LakeArguments,
    StoreName,
    LayoutArgument,
    HtmlPageOption,
    EvidenceArgument,
    ThreadArguments,
    after={
        PullArguments: "store",
        LakeArguments: "store",
        StoreName: "broker",
        LayoutArgument: "broker_conf",
        HtmlPageOption: "no_quality",
        EvidenceArgument: "commit_every",
        ThreadArguments: "commit_every",
    },
):
    """Command line options of `archive`, the job that copies new messages of broker stores into a lake."""

    store: str | None = option(
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker",
        metavar="PATH",
    )
    lake: str = option(
        "the lake: a folder or s3://bucket/prefix, created if it does not exist, or catalog.schema of Unity Catalog, "
        "which must exist",
        metavar="PLACE",
        required=True,
    )
    bodies_moved: bool = flag(
        "all bodies of the lake were moved to --bodies (or back into the lake); needed once, later runs remember it"
    )
    broker: str | None = declare_broker_option(
        "the store's name in the lake; otherwise brokerName of --broker-conf, or of a broker.conf beside the store, or "
        "the folder's name. With --from-broker: the only broker to pull from"
    )
    broker_conf: str | None = option(
        "the broker's settings file broker.conf, for brokerName and the folders of the log", metavar="FILE"
    )
    partition_mib: int = option(
        "size of the log whose bodies go into one pack, MiB (default: 32)", parse=positive, default=32, metavar="N"
    )
    on_corrupt: str | None = option(
        "bytes that are not an intact record: fail (archive nothing, exit 3) or quarantine (record them in the table "
        "quarantine, archive the rest, exit 0); without this option, as quarantine, but exit 3",
        choices=("fail", "quarantine"),
    )
    on_gap: str | None = option(
        "segments that are missing: fail (archive nothing, exit 3) or record (record them in the table gaps, archive "
        "the rest, exit 0); without this option, as record, but exit 3",
        choices=("fail", "record"),
    )
    no_quality: bool = flag("commit without checking expectations; the run then stores no profiles for audit")
    html: Path | None = option(
        f"{HTML_HELP} (default: quality.html in the lake, if the lake is a folder and expectations were checked)",
        parse=Path,
        metavar="FILE",
    )
    quality_page: Path | None = option(
        argparse.SUPPRESS,
        parse=Path,
        metavar="FILE",
        rules=conflicts_with("html", hint="{this} is another name of {other}: leave one of them out"),
    )
    no_keys: bool = flag(
        "do not update message_keys, edges and consumptions in this run; look-ups by key read the missing part from "
        "messages"
    )
    no_edges: bool = flag(
        "do not update edges and consumptions in this run; lineage does not show the newest messages until a later run "
        "does"
    )
    hbase: str | None = option(
        "also write messages to a table in HBase, through its Thrift server (default: off)", metavar="HOST[:PORT]"
    )
    hbase_option: tuple[tuple[str, str], ...] = repeated(
        "further HBase options, see connectors/hbase/options.py: table, ttlSeconds, compression, batchRows, …",
        parse=_parse_name_value_pair,
        metavar="NAME=VALUE",
        rules=requires_one_of("hbase"),
    )
    mask: tuple[str, ...] = repeated(
        "mask a field of every message before it is archived: body, body.NAME, property.NAME, keys or tags by hash, "
        "null, last:N, truncate:N or text:T, as in keys=hash. The rules and the key (COMMITLAKE_MASK_KEY) cannot "
        "change after the lake's first message",
        metavar="FIELD=RULE",
    )
    backfill: str | None = option(
        "instead of archiving, add the missing rows of this table, computed from the lake's messages, as after an "
        "upgrade; needs no --store",
        choices=("topic_minutes", "edges", "lag_minutes"),
        rules=overrides(
            "store",
            "from_broker",
            "follow",
            "available_now",
            "html",
            "quality_page",
            hint="{this} reads the lake: leave one of them out",
        ),
    )
    commit_every: int | None = option(
        "size of the log after which a run commits, so that a run that is killed loses no more than that, as in 16GiB "
        "(default: 8GiB for each core); a run that is set to fail at damage or a gap commits once",
        parse=parse_file_size,
        metavar="SIZE",
    )
    follow: bool = flag(
        "keep running and archive messages as they arrive, until stopped (SIGTERM); with --store, on Spark"
    )
    trigger: datetime.timedelta = option(
        "with --follow: how often to look for new messages (default: 2s)",
        parse=parse_duration,
        default=parse_duration("2s"),
        metavar="TIME",
    )
    snapshot_every: datetime.timedelta = option(
        "with --follow: how often to save the offsets of consumer groups (default: 60s)",
        parse=parse_duration,
        default=parse_duration("60s"),
        metavar="TIME",
    )
    available_now: bool = flag(
        "as --follow, but stop after the messages that were there at the start, in runs of --max-mib-per-run"
    )
    max_mib_per_run: int = option(
        "with --follow or --available-now: size of the log that one run may read, MiB (default: 1024)",
        parse=positive,
        default=1024,
        metavar="N",
    )

    @property
    def follows_store(self) -> bool:
        """True if the log of a store is read as a stream, which is possible only on Spark."""
        return self.from_broker is None and (self.follow or self.available_now)

    @property
    def is_on_spark(self) -> bool:
        """True if the tasks run on Spark: by an option, by where the job runs, or because a stream needs it."""
        return super().is_on_spark or (self.follows_store and not self.local)

    @property
    def html_report_path(self) -> Path | None:
        """Path of the HTML page to write; None if no page is requested."""
        return self.html or self.quality_page

    def resolve_options(self) -> Self:
        """Return the options; with --from-broker, drop --store and --broker-conf if only the environment sets them."""
        return drop_conflicting_variable(
            drop_conflicting_variable(self, "from-broker", "store"), "from-broker", "broker-conf"
        )


def make_broker_source(command: ArchiveOptions) -> BrokerSource:
    """Return the source that pulls messages from the live brokers that the options name.

    Raises:
        UsageError: for an invalid address.
    """
    from commitlake.connectors.rocketmq.options import ClientOptions
    from commitlake.connectors.rocketmq.throttle import RateLimit
    from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource

    return BrokerSource(
        ClientOptions(command.from_broker or "", request_seconds=_REQUEST_SECONDS),
        brokers=() if command.broker is None else (command.broker,),
        topics=tuple(dict.fromkeys(command.topic)),
        rate=command.max_rate or RateLimit(),
    )
