"""Show the paths of business keys over topics, times between topics, and keys that do not fit.

    commitlake journeys --lake /data/lake --from -1d
    commitlake journeys --lake /data/lake --from -1d --through payments --missing shipments

It starts no JVM without --spark. Exit codes: 0; 1 for a failure of a service; 2 for a wrong lake or option; 3 if the
lake has lost messages of the time, or a table is damaged.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.lake_names import check_archived_brokers, unknown_tag_sentences, unknown_topic_sentences
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_files import explain_damaged_files
from commitlake.jobs.cli.lost_ranges import warn_of_lost_ranges
from commitlake.jobs.journeys.arguments import HOPS, KEYS, JourneysOptions
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.counts import format_count
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.journeys.answer import Answer, KnownTimes
    from commitlake.jobs.report.output import PageFile
    from commitlake.pipelines.journeys.misfits import Misfits
    from commitlake.pipelines.journeys.question import JourneysQuestion
    from commitlake.schemas.report import Report

_READ = ("messages", "edges")


def _path_text(path: Sequence[str]) -> str:
    return " > ".join(path)


def _delay_text(delay_ms: int) -> str:
    return approximate_duration_text(datetime.timedelta(milliseconds=delay_ms))


PATH_COLUMNS = (
    Column("path", text=_path_text), Column("keys", is_number=True),
    Column("% of keys", 1, key="share_percent", is_number=True), Column("dead", 2, is_number=True),
    Column("open", 3, is_number=True),
)  # fmt: skip
HOP_COLUMNS = (
    Column("from", key="source"), Column("to", key="target"), Column("hops", is_number=True),
    Column("p50", 1, key="p50_ms", is_number=True, text=_delay_text),
    Column("p95", 2, key="p95_ms", is_number=True, text=_delay_text),
    Column("p99", 3, key="p99_ms", is_number=True, text=_delay_text),
)  # fmt: skip
KEY_COLUMNS = (
    Column("key", is_whole=True), Column("reasons", 1, text=", ".join), Column("path", 2, text=_path_text),
    Column("outcome", 3), Column("last sent", 4, key="last_sent_at"), Column("due", 5, key="due_at"),
    Column("messages", 6, is_number=True), Column("retries", 7, is_number=True),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Journeys(JourneysOptions):
    """The command `journeys`."""

    def run(self) -> ExitCode:
        """Compute and print what is asked, and report what is cut or missing."""
        if self.html is None:
            return _answer(self, None)
        from commitlake.jobs.journeys.report import TITLE
        from commitlake.jobs.report.output import check_page_file, write_page_on_failure

        file = check_page_file(self.html)
        with write_page_on_failure(file, "journeys", TITLE, [("Lake", self.lake)]):
            return _answer(self, file)


def _answer(command: Journeys, file: PageFile | None) -> ExitCode:
    lake = open_lake_argument(command)
    with explain_damaged_files(lake, _READ), _explaining_where(command):
        return _show(command, lake, file)


def _show(command: Journeys, lake: Lake, file: PageFile | None) -> ExitCode:
    """Compute and print what is asked, and also write it to a page if a file is given."""
    from commitlake.jobs.journeys.answer import known_times, open_answer
    from commitlake.pipelines.journeys.question import JourneysQuestion
    from commitlake.pipelines.lineage.topic_graph import complete_time_range

    check_archived_brokers(lake, command.broker)
    _warn_of_unknown_names(command, lake)
    since, until = complete_time_range(lake, command.start, command.end)
    until = max(until, since + MILLISECOND)  # the newest message may be older than --from
    selection = replace(command.selection, start=None, end=None)
    question = JourneysQuestion(since, until, command.margin, selection=selection)
    missing = warn_of_lost_ranges("journeys", lake, command.broker, question.begin, question.end)
    known = known_times(lake, question)
    with open_answer(command, lake, question) as answer:
        if command.shown == KEYS:
            _show_keys(command, answer, known, missing)
        elif command.shown == HOPS:
            _write(command, answer.hops(), HOP_COLUMNS, missing)
        else:
            _show_paths(command, answer, missing)
        notes = [] if command.quiet and file is None else list(_notes(answer, question, known))
        if file is not None:
            file.write(_page(command, answer, known, notes, missing))
        if not command.quiet:
            print(*notes, sep="\n", file=sys.stderr)
    return ExitCode.DAMAGE if missing else ExitCode.OK


def _warn_of_unknown_names(command: Journeys, lake: Lake) -> None:
    """Warn of topics and tags that no message has: no key passes a topic with a mistyped name, and all lack it."""
    messages, stuck = lake.table("messages"), (topic for topic, _ in command.stuck_after)
    topics = dict.fromkeys([*command.topic, *command.through, *command.missing, *stuck])
    sentences = [*unknown_topic_sentences(lake, messages, topics), *unknown_tag_sentences(messages, command.tag)]
    for sentence in sentences:
        print_warning("commitlake journeys", sentence)


def _show_paths(command: Journeys, answer: Answer, missing: Sequence[str]) -> None:
    rows = _shares(answer, command.limit or None)
    _write(command, rows, PATH_COLUMNS, missing)
    if command.output == "table" and rows and command.show is None:
        print()
        _write(command, answer.hops(), HOP_COLUMNS, ())


def _shares(answer: Answer, limit: int | None) -> list[dict[str, Any]]:
    """Return the most frequent paths, with their share of all keys."""
    keys = max(answer.counts["keys"], 1)
    return [{**row, "share_percent": round(100 * row["keys"] / keys, 1)} for row in answer.paths(limit)]


def _misfits(command: Journeys, known: KnownTimes) -> Misfits:
    from commitlake.pipelines.journeys.misfits import Misfits

    return Misfits(known.until, command.through, command.missing, command.stuck_after, command.unexpected)


def _show_keys(command: Journeys, answer: Answer, known: KnownTimes, missing: Sequence[str]) -> None:
    found = answer.misfits(_misfits(command, known), command.limit or None)
    _write(command, found.rows, KEY_COLUMNS, missing)
    if not command.quiet:
        count = found.count
        shown = f"; the first {command.limit:,} are shown, --limit 0 shows all" if 0 < command.limit < count else ""
        print(f"{count:,} of {format_count(answer.counts['keys'], 'key')}{shown}", file=sys.stderr)


def _write(
    command: Journeys, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], missing: Sequence[str]
) -> None:
    from commitlake.jobs.report.rows_output import write_rows

    plain = (dict(row) for row in rows)
    first = list(islice(plain, 1))
    names: Sequence[str] = columns
    if command.output == "csv":
        names = list(first[0]) if first else [column.key for column in columns]
    write_rows(command.output, chain(first, plain), names, missing)


def _page(command: Journeys, answer: Answer, known: KnownTimes, notes: Sequence[str], missing: Sequence[str]) -> Report:
    from commitlake.jobs.journeys import report

    wanted = _misfits(command, known)
    paths = _shares(answer, report.SHOWN_PATHS)
    found = answer.misfits(wanted, report.MAX_KEYS) if wanted.is_asked else None
    return report.journeys_report(
        report.JourneysPage(
            facts=[("Lake", command.lake), ("Time", notes[0])],
            counts=answer.counts,
            paths=paths,
            path_count=answer.path_count,
            examples=answer.keys_of_paths([row["path"] for row in paths], report.KEYS_OF_PATH),
            hops=answer.hops(),
            hop_columns=HOP_COLUMNS,
            misfits=None if found is None else list(found.rows),
            misfit_count=0 if found is None else found.count,
            key_columns=KEY_COLUMNS,
            notes=notes[1:],
            missing=missing,
            lake=command.lake,
        )
    )


def _notes(answer: Answer, question: JourneysQuestion, known: KnownTimes) -> Iterator[str]:
    """Yield sentences on the time, and on what is cut; the first one is always there."""
    counts = answer.counts
    began = (
        f"{format_count(counts['keys'], 'key')} began from {time_text(question.since)} to {time_text(question.until)}"
    )
    yield f"{began}; records are read up to {time_text(question.end)}, and known up to {time_text(known.until)}"
    if counts["began_before"]:
        before = format_count(counts["began_before"], "more key", "more keys")
        yield f"{before} began before, and {'is' if counts['began_before'] == 1 else 'are'} not shown"
    if counts["is_cut"]:
        of_keys = f"paths of keys with more than {question.max_steps:,} messages are cut ({counts['is_cut']:,})"
        yield f"{of_keys}: no topic is missing in them for sure"
    if counts["order_uncertain"]:
        of_keys = f"the order of some messages is not certain, of {format_count(counts['order_uncertain'], 'key')}"
        yield f"{of_keys}: a broker's clock was set back"
    for broker, newest in known.older.items():
        yield f"{broker} has no record after {time_text(newest)} in the lake: later messages may not be archived yet"


@contextmanager
def _explaining_where(command: Journeys) -> Iterator[None]:
    """Convert an error of the query engine to one that says that `--where` is not valid."""
    from commitlake.connectors.lake.reader import QueryError

    try:
        yield
    except QueryError as error:
        if command.where is None:
            raise
        raise JobError(f"--where is not a valid condition: {error}") from None


build_parser, main = Journeys.parser, Journeys.main
