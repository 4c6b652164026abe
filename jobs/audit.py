"""Compare what was archived with what is there: store, tables, packs and HBase, window by window.

    commitlake audit --lake /data/lake --store /data/rocketmq/store

For each topic, queue and window of ten minutes: messages, bytes, first and last offsets, and a checksum in which every
message is. `messages` is compared with what the archive's runs counted when they read the log, with the bodies in the
packs (each is read, and compared with its CRC), with the store as far as it still has what was archived, and with
HBase. One message less anywhere is a difference.

Exit codes: 0 where all are the same; 2 for a wrong store or lake; 3 where something differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.lake.archive_log import read_last_commit
from connectors.lake.paths import LakeError
from jobs.command import ExitCode, job_parser, run_job
from jobs.places import add_place_arguments, bodies_of, lake_of
from jobs.progress import spark_progress
from jobs.times import join_times, parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.audit_sides import Sides

DESCRIPTION = (
    "Tell whether everything that was archived is there, and the same everywhere: what the runs counted, the table "
    "messages, the bodies in the packs, the store as far as it still has it, and HBase."
)
EXAMPLES = (
    ("audit --lake /data/lake", "the lake by itself, bodies included"),
    ("audit --lake /data/lake --store '/mnt/brokers/{broker}/store'", "and with the brokers' logs"),
    ("audit --lake /data/lake --from -1d --no-bodies --output json", "the last day, without reading the packs"),
    ("audit --lake /data/lake --hbase hbase-thrift:9090", "and with HBase"),
)
_SHOWN = 5
_BODY_FIGURES = ("messages", "bytes", "body_bytes", "checksum")


@dataclass(frozen=True)
class Verdict:
    """One comparison.

    Attributes:
        expected: the side that was taken for right.
        found: the other.
        windows: how many windows the first has.
        messages: how many messages.
        differing: how many windows differ.
        differences: the first of them.
        notes: what else is to be said: bodies that cannot be had, brokers that are not there.
    """

    expected: str
    found: str
    windows: int
    messages: int
    differing: int
    differences: Sequence[Mapping[str, Any]] = field(default=())
    notes: Sequence[str] = field(default=())


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("audit", DESCRIPTION, EXAMPLES)
    add_place_arguments(parser)
    store_help = "stores to compare with, as for archive; they may have lost what was archived long ago"
    parser.add_argument("--store", metavar="PATH", help=store_help)
    parser.add_argument("--broker", help="the store's name, where the path does not tell it")
    time_help = "{} stored from then on: 2026-11-20T14:00, 2026-11-20, ms since 1970, now, or -2h"
    parser.add_argument("--from", dest="first", type=parse_time, metavar="TIME", help=time_help.format("messages"))
    parser.add_argument("--to", dest="last", type=parse_time, metavar="TIME", help=time_help.format("no messages"))
    parser.add_argument("--no-bodies", action="store_true", help="do not read the packs")
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="compare with HBase, by its Thrift server")
    parser.add_argument("--hbase-table", metavar="NAME", help="its table there (default: commitlake_messages)")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Compare, tell, and say whether all is the same."""
    lake = lake_of(arguments)
    last = read_last_commit(lake.messages)
    if last is None:
        raise LakeError(
            f"{lake.root} is not a lake, or nothing was archived into it yet: 'commitlake archive' does that"
        )
    from connectors.spark_session import get_session
    from jobs.audit_sides import Sides, Span, ranges_in_store

    spark = get_session("audit", lake.s3)
    if arguments.hbase:
        from connectors.hbase import register

        register(spark)
    sides = Sides(spark, lake, bodies_of(arguments, lake), Span(arguments.first, arguments.last))
    verdicts = []
    with spark_progress(spark, f"auditing {lake.root}", quiet=arguments.quiet):
        messages = sides.messages().cache()
        verdicts.append(_compare("runs", sides.archived(), "messages", messages))
        if not arguments.no_bodies:
            verdicts.append(_compare_packs(sides, messages))
        if arguments.store:
            ranges = ranges_in_store(arguments.store, arguments.broker, last.stores)
            store = sides.store(arguments.store, arguments.broker, ranges)
            verdicts.append(_compare("store", store, "messages", sides.messages(ranges)))
        if arguments.hbase:
            verdicts.append(_compare("messages", messages, "hbase", sides.hbase(_hbase_options(arguments))))
    tell = _as_json if arguments.output == "json" else _as_text
    print(tell(verdicts))
    return ExitCode.DAMAGE if any(verdict.differing for verdict in verdicts) else ExitCode.OK


def _hbase_options(arguments: argparse.Namespace) -> dict[str, str]:
    from connectors.hbase.options import Options

    options = Options.of_address(arguments.hbase, **({"table": arguments.hbase_table} if arguments.hbase_table else {}))
    return {"host": options.host, "port": str(options.port), "table": options.table}


def _compare(
    expected_name: str,
    expected: DataFrame,
    found_name: str,
    found: DataFrame,
    columns: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Verdict:
    from pyspark.sql import functions as F

    from pipelines.profile import FIGURES, compare_profiles

    expected = expected.cache()
    differences = compare_profiles(expected, found, columns=columns or FIGURES).cache()
    counted = expected.agg(F.count("*"), F.coalesce(F.sum("messages"), F.lit(0))).first()
    assert counted is not None  # an aggregate without groups has one row
    first = [row.asDict() for row in differences.limit(_SHOWN).collect()]
    return Verdict(expected_name, found_name, counted[0], counted[1], differences.count(), first, notes)


def _compare_packs(sides: Sides, messages: DataFrame) -> Verdict:
    from pyspark.sql import functions as F

    from pipelines.profile import to_profile

    rows = sides.packs().cache()
    broken = rows.where(F.col("error").isNotNull())
    notes = [f"{row['broker']} {row['physical_offset']}: {row['error']}" for row in broken.limit(_SHOWN).collect()]
    return _compare("messages", messages, "packs", to_profile(rows), _BODY_FIGURES, notes)


def _as_json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps([asdict(verdict) for verdict in verdicts], default=str, indent=2, ensure_ascii=False)


def _as_text(verdicts: Sequence[Verdict]) -> str:
    lines = []
    for verdict in verdicts:
        what = f"{verdict.expected} and {verdict.found}"
        counted = f"{verdict.messages:,} messages in {verdict.windows:,} windows"
        if not verdict.differing:
            lines.append(f"the same    {what}: {counted}")
            continue
        lines.append(f"DIFFERENT   {what}: {verdict.differing:,} windows of {counted}")
        lines += [f"  {_difference(row)}" for row in verdict.differences]
        lines += [f"  {note}" for note in verdict.notes]
    return "\n".join(lines)


def _difference(row: Mapping[str, Any]) -> str:
    place = f"{row['broker']}, {row['topic']}, queue {row['queue_id']}, window {row['window_start'] or 'without time'}"
    if row["difference"] != "different":
        side = "expected_messages" if row["difference"] == "missing" else "found_messages"
        return f"{place}: {row['difference']}, {row[side]} messages"
    figures = ", ".join(
        f"{name} expected {row[f'expected_{name}']}, found {row[f'found_{name}']}" for name in row["different_columns"]
    )
    return f"{place}: {figures}"


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake audit`."""
    arguments = join_times(sys.argv[1:] if argv is None else argv, "--from", "--to")
    return run_job(build_parser(), job, arguments)
