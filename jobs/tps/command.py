"""Tell messages and bytes per second of any past time, from the lake, by topic, queue, tag, kind or producer.

    commitlake tps --lake /data/lake --from -1d --window 1h

Reads `topic_minutes`; for windows shorter than a minute, and for producers, `messages`. Writes rows to standard
output, and on standard error which time they are of and what is missing in the archive. It starts no JVM. Exit codes:
0, also where there is no message; 2 for a wrong lake or option, or where `topic_minutes` lacks archive runs; 3 for a
damaged table.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.damaged_files import naming_damaged_files
from commitlake.jobs.cli.durations import duration_text, parse_duration
from commitlake.jobs.cli.names import did_you_mean, warn
from commitlake.jobs.cli.places import add_place_arguments, lake_of
from commitlake.jobs.cli.rows_output import Row, write
from commitlake.jobs.cli.times import add_time_arguments, join_times
from commitlake.pipelines.tps.question import GROUPS, MINUTE, MINUTES, SECOND, RatesQuestion
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.times import EPOCH

if TYPE_CHECKING:
    from commitlake.connectors.lake.paths import LakePaths
    from commitlake.pipelines.tps.coverage import Coverage

DESCRIPTION = (
    "Tell how many messages and bytes per second brokers stored, at any time that is archived. Without --window there "
    "is a row for each group over all the time, with its busiest minute (or second, where messages are counted); with "
    "--window a row for each window. A time that is not archived has no figures: 0 means that no message was stored."
)
EXAMPLES = (
    ("tps --lake lake", "each topic, over all that is archived"),
    ("tps --lake lake --from -1d --window 1h --by topic,queue", "queues, hour by hour, since yesterday"),
    ("tps --lake lake --topic orders --from 2026-11-20T14:00 --to 2026-11-20T14:05 --window 1s", "second by second"),
    ("tps --lake lake --by topic --percentiles", "with p50, p95 and p99 of size and latency"),
    ("tps --lake lake --from -1h --compare week", "the last hour, and the same hour a week before"),
    ("tps --lake lake --window 5m --step 1m --topic orders", "five minutes each, one beginning each minute"),
    ("tps --lake lake --from -1h --by producer-host --top 5", "the five hosts that sent most"),
    ("tps --lake lake --window 1h --output csv", "for a spreadsheet"),
    ("tps --lake lake --from -1d --html rates.html", "a page with charts"),
)
COMPARED = {"day": datetime.timedelta(days=1), "week": datetime.timedelta(weeks=1)}
_SHOWN = ("messages", "messages_per_s", "bytes_per_s")
_ALSO = ("retries", "dead_letters", "prepared", "committed", "clock_skew")
_MADE_PLAIN = ("window_start", "peak_at")

_READ = ("messages", "topic_minutes", "archive_runs", "gaps")
"""Tables that an answer comes from."""


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("tps", DESCRIPTION, EXAMPLES)
    add_place_arguments(parser)
    by_help = (
        f"what to group by, with commas between: {', '.join(GROUPS)}; 'none' for one group (default: topic). Only "
        "messages of transactions name their producer group"
    )
    parser.add_argument("--by", default="topic", metavar="A,B", help=by_help)
    window_help = "a row for each window of this length, 1s or more, as in 1s, 5m, 1h (default: one row for all)"
    parser.add_argument("--window", type=parse_duration, metavar="TIME", help=window_help)
    step_help = "with --window: begin a window every so often, so that they overlap; a part of --window"
    parser.add_argument("--step", type=parse_duration, metavar="TIME", help=step_help)
    parser.add_argument("--topic", action="append", default=[], help="only this stored topic")
    parser.add_argument("--queue", type=int, help="only this queue id")
    parser.add_argument("--tag", action="append", default=[], help="only this tag")
    kinds = [str(kind) for kind in Kind]
    parser.add_argument("--kind", action="append", default=[], choices=kinds, help="only this kind of record")
    parser.add_argument("--broker", action="append", default=[], help="only this store")
    add_time_arguments(parser)
    percentiles_help = (
        "p50, p95 and p99 of size, latency and wait, in ms: see schemas/tables/topic_minutes.py; of groups and windows "
        "that topic_minutes has"
    )
    parser.add_argument("--percentiles", action="store_true", help=percentiles_help)
    parser.add_argument("--compare", choices=tuple(COMPARED), help="with the same time a day or a week before")
    top_help = "only the groups with most messages, 0 for all (default: 20)"
    parser.add_argument("--top", type=int, default=20, metavar="N", help=top_help)
    parser.add_argument("--output", choices=("table", "jsonl", "csv"), default="table", help="(default: table)")
    html_help = "write a page as well: rates over time, latency, the largest groups, what to do; it works offline"
    parser.add_argument("--html", type=Path, metavar="FILE", help=html_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Count, print, and say what is missing."""
    by = _groups(arguments.by)
    _check_lengths(arguments)
    lake = lake_of(arguments)
    with naming_damaged_files(lake, _READ):
        return _answer(arguments, lake, by)


def _answer(arguments: argparse.Namespace, lake: LakePaths, by: list[str]) -> ExitCode:
    started = time.monotonic()
    from commitlake.pipelines.tps.coverage import read_coverage
    from commitlake.pipelines.tps.rates import QUANTILES, Rates, add_comparison

    _open(lake, arguments)
    coverage = read_coverage(lake, arguments.broker)
    question = _question(arguments, by, coverage)
    if question is None:
        print("no message is archived", file=sys.stderr)
        return ExitCode.OK
    if question.table is MINUTES:
        _check_all_counted(lake)
    elif arguments.percentiles:
        raise JobError(
            "--percentiles is of whole minutes, and not of producers", "give a --window such as 1m, and other groups"
        )
    rates = Rates(lake, coverage)
    rows = rates.rows(question, has_quantiles=arguments.percentiles)
    columns = _columns(question, QUANTILES if arguments.percentiles else ())
    if arguments.compare:
        length = COMPARED[arguments.compare]
        add_comparison(rows, rates.rows(question.earlier(length)), question, length, coverage)
        columns += ["messages_before", "change_percent"]
    shown, groups = _largest(rows, by, arguments.top)
    write(arguments.output, (_plain(row, columns) for row in shown), columns)
    if arguments.html is not None:
        _write_page(arguments, lake, coverage, question)
    _explain_empty(arguments, lake, rows)
    if not arguments.quiet:
        _tell(question, coverage, rows, groups, arguments, time.monotonic() - started)
    return ExitCode.OK


def _groups(text: str) -> list[str]:
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in GROUPS:
            raise JobError(
                f"--by: there is no group {name!r}.{did_you_mean(name, GROUPS)}", f"there are: {', '.join(GROUPS)}"
            )
    if len(set(names)) < len(names):
        raise JobError(f"--by names a group twice: {text!r}", "name each once")
    return names


def _check_lengths(arguments: argparse.Namespace) -> None:
    window, step = arguments.window, arguments.step
    if arguments.top < 0:
        raise JobError(f"--top: expected 0 or more, found {arguments.top}")
    if window is not None and window < SECOND:
        raise JobError("--window: expected 1s or more, found 0s", "a second is the shortest window")
    if step is None:
        return
    if window is None:
        raise JobError("--step has no effect without --window", "add --window, or leave it out")
    if step < SECOND or window % step:
        raise JobError(f"--step: expected a part of --window {duration_text(window)}, found {duration_text(step)}",
                       "as in --window 5m --step 1m")  # fmt: skip
    if arguments.percentiles and step != window:
        raise JobError("--percentiles and --step do not go together", "leave --step out")


def _open(lake: LakePaths, arguments: argparse.Namespace) -> None:
    """See whether the lake can answer.

    Raises:
        JobError: where it has no `topic_minutes`, or no such broker.
        LakeError: where there is no lake.
    """
    from commitlake.connectors.lake.followed_runs import check_follows
    from commitlake.connectors.lake.reader import NoTableError, open_table
    from commitlake.jobs.cli.lake_names import check_brokers

    open_table(lake, "messages")
    check_follows(lake, "topic_minutes")
    try:
        open_table(lake, "topic_minutes")
    except NoTableError:
        raise JobError(f"the lake {lake.root} has no table 'topic_minutes' yet", _BACKFILL) from None
    check_brokers(lake, arguments.broker)


_BACKFILL = "'commitlake archive --lake LAKE --backfill topic_minutes --local' counts what was archived before"


def _check_all_counted(lake: LakePaths) -> None:
    """Refuse a table that lacks runs: its figures would be too small."""
    from commitlake.pipelines.topic_minutes.progress import count_uncounted_runs

    lacking = count_uncounted_runs(lake)
    if lacking:
        raise JobError(f"topic_minutes lacks {lacking:,} archive runs: its figures would be too small", _BACKFILL)


def _question(arguments: argparse.Namespace, by: Sequence[str], coverage: Coverage) -> RatesQuestion | None:
    """The question, from whole units to whole units of time; None where nothing is archived."""
    whole = coverage.whole
    if whole is None:
        return None
    question = RatesQuestion(
        by=by,
        start=arguments.start or whole.start,
        end=arguments.end or max(whole.end, (arguments.start or whole.start) + MINUTE),
        window=arguments.window,
        step=arguments.step,
        topics=arguments.topic,
        queue_id=arguments.queue,
        tags=arguments.tag,
        kinds=arguments.kind,
        brokers=arguments.broker,
    )
    unit = arguments.step or arguments.window or question.table.unit
    aligned = replace(question, start=_whole(question.start, unit), end=_whole(question.end, unit, up=True))
    if aligned.start >= aligned.end:
        raise JobError(f"--from {_text(question.start)} is not before --to {_text(question.end)}", "exchange them")
    return aligned


def _whole(moment: datetime.datetime, unit: datetime.timedelta, *, up: bool = False) -> datetime.datetime:
    """Return the multiple of a unit since 1970 that is not after a moment, or not before it."""
    since = moment - EPOCH
    count = -(-since // unit) if up else since // unit
    return EPOCH + count * unit


def _columns(question: RatesQuestion, quantiles: Sequence[str]) -> list[str]:
    times = ["window_start"] if question.window is not None else []
    peaks = [] if question.window is not None else ["peak_per_s", "peak_at"]
    return [*times, *question.by, *_SHOWN, *peaks, *quantiles, *_ALSO, "archived"]


def _largest(rows: Sequence[Row], by: Sequence[str], top: int) -> tuple[Sequence[Row], int]:
    """Return the rows of the largest groups, and how many groups there are."""
    totals: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        totals[key] = totals.get(key, 0) + (row["messages"] or 0)
    if not top or len(totals) <= top:
        return rows, len(totals)
    largest = set(sorted(totals, key=lambda key: -totals[key])[:top])
    return [row for row in rows if tuple(row[name] for name in by) in largest], len(totals)


def _plain(row: Row, columns: Sequence[str]) -> Row:
    """A row for output: times as text, rates with up to three digits behind the point."""
    found = {name: row[name] for name in columns}
    for name in _MADE_PLAIN:
        if found.get(name) is not None:
            found[name] = _text(found[name])
    for name, value in found.items():
        if isinstance(value, float):
            found[name] = round(value, 3)
    return found


def _text(moment: datetime.datetime) -> str:
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%S}Z"


def _write_page(arguments: argparse.Namespace, lake: LakePaths, coverage: Coverage, question: RatesQuestion) -> None:
    from commitlake.jobs.pages.page import made_now, write_page
    from commitlake.jobs.pages.tps import rates_page
    from commitlake.pipelines.tps.report import make_report

    write_page(arguments.html, rates_page(make_report(lake, coverage, question), lake.root, made_now("tps")))


def _explain_empty(arguments: argparse.Namespace, lake: LakePaths, rows: Sequence[Row]) -> None:
    """Warn of topics that the lake does not have, where nothing was found."""
    if not arguments.topic or any(row["messages"] for row in rows):
        return
    from commitlake.connectors.lake.reader import open_table
    from commitlake.jobs.cli.lake_names import unknown_topics

    for sentence in unknown_topics(lake, open_table(lake, "messages"), arguments.topic):
        warn("commitlake tps", sentence)


def _tell(
    question: RatesQuestion,
    coverage: Coverage,
    rows: Sequence[Row],
    groups: int,
    arguments: argparse.Namespace,
    seconds: float,
) -> None:
    """Say on standard error which time the rows are of, and what is missing."""
    lines = []
    if arguments.top and groups > arguments.top:
        lines.append(f"{arguments.top} of {groups:,} groups are shown; --top 0 shows all")
    totals = {name: sum(row[name] or 0 for row in rows) for name in (*_ALSO, "messages", "other_tags")}
    if arguments.step in (None, arguments.window):
        lines += _rate_lines(totals)
    if totals["other_tags"] and ("tag" in question.by or arguments.tag):
        lines.append(
            f"{totals['other_tags']:,} messages have tags that topic_minutes does not name: they have no tag here"
        )
    if arguments.tag and question.table is MINUTES:
        lines.append("a tag may have more messages than are shown: of each topic only the most frequent are named")
    lines += _coverage_lines(question, coverage)
    lines.append(f"{_text(question.start)} to {_text(question.end)}, from {question.table.name} ({seconds:.1f} s)")
    print("\n".join(lines), file=sys.stderr)


def _rate_lines(totals: dict[str, int]) -> list[str]:
    lines = []
    messages = totals["messages"]
    for name, what in (("retries", "retries"), ("dead_letters", "dead letters")):
        if totals[name]:
            lines.append(f"{totals[name]:,} {what}: {100 * totals[name] / messages:.3g} % of the messages")
    if totals["prepared"]:
        open_or_back = max(0, totals["prepared"] - totals["committed"])
        lines.append(
            f"{totals['prepared']:,} transactions: {totals['committed']:,} messages were committed, "
            f"{open_or_back:,} were rolled back or are open"
        )
    if totals["clock_skew"]:
        lines.append(
            f"{totals['clock_skew']:,} messages were stored before they were born, by the clocks of both hosts"
        )
    return lines


def _coverage_lines(question: RatesQuestion, coverage: Coverage) -> list[str]:
    lines = []
    for broker, span in sorted(coverage.spans.items()):
        if question.start < span.start or question.end > span.end:
            lines.append(f"{broker}: archived from {_text(span.start)} to {_text(span.end)} only")
        lines += [
            f"{broker}: a part of the log from {_text(gap.start)} to {_text(gap.end)} is not archived"
            for gap in coverage.gaps.get(broker, ())
            if gap.start < question.end and question.start < gap.end
        ]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake tps`."""
    return run_job(build_parser(), job, join_times(sys.argv[1:] if argv is None else argv, "--from", "--to"))
