"""Show the paths of business keys over topics, times between topics, and keys that do not fit.

    commitlake journeys --lake /data/lake --from -1d
    commitlake journeys --lake /data/lake --from -1d --through payments --missing shipments

It starts no JVM without --spark. Exit codes: 0; 1 for a failure of a service; 2 for a wrong lake or option; 3 if the
lake has lost messages of the time, or a table is damaged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.arguments.unknown_lake_names import (
    check_archived_brokers,
    unknown_tag_sentences,
    unknown_topic_sentences,
)
from commitlake.jobs.cli.damaged_file_errors import explain_invalid_where
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.journeys.arguments import HOPS, KEYS, TITLE, JourneysOptions
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.journeys.journey_results import JourneysAnswer, NewestRecordTimes
    from commitlake.jobs.report.page_file import PageFile
    from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
    from commitlake.pipelines.journeys.misfits import MisfitRules
    from commitlake.schemas.report_columns import Column

_READ = ("messages", "edges")


@dataclass(frozen=True, kw_only=True)
class Journeys(JourneysOptions):
    """The command `journeys`, which shows the paths that business keys take from topic to topic."""

    def run(self) -> ExitCode:
        """Compute and print the chosen rows, and report where data is truncated or missing."""
        with self.open_page("journeys", TITLE, [("Lake", self.lake)]) as file:
            return _open_lake_and_print(self, file)


def _open_lake_and_print(command: Journeys, page_file: PageFile | None) -> ExitCode:
    lake = open_lake_argument(command)
    with explain_invalid_where(command.where, lake, _READ):
        return _print_rows_and_page(command, lake, page_file)


def _print_rows_and_page(command: Journeys, lake: Lake, page_file: PageFile | None) -> ExitCode:
    """Compute and print the chosen rows, and also write a page if a file is given."""
    from commitlake.jobs.journeys import report
    from commitlake.jobs.journeys.journey_results import newest_record_times, open_journeys_answer
    from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
    from commitlake.pipelines.lineage.topic_graph import complete_time_range

    check_archived_brokers(lake, command.broker)
    _warn_of_unknown_names(command, lake)
    since, until = complete_time_range(lake, command.start, command.end)
    until = max(until, since + MILLISECOND)  # the newest message may be older than --from
    selection = replace(command.selection, start=None, end=None)
    question = JourneysQuestion(since, until, command.margin, selection=selection)
    missing = warn_of_lost_ranges("journeys", lake, command.broker, question.read_begin, question.read_end)
    known = newest_record_times(lake, question)
    with open_journeys_answer(command, lake, question) as answer:
        if command.show_choice == KEYS:
            _show_keys(command, answer, known, missing)
        elif command.show_choice == HOPS:
            _show_hops(command, answer, missing)
        else:
            _show_paths(command, answer, missing)
        notes = [] if command.quiet and page_file is None else list(_note_sentences(answer, question, known))
        if page_file is not None:
            rules = _misfit_criteria(command, known)
            page_file.write(report.journeys_report(answer, rules, notes, missing, command.lake))
        if not command.quiet:
            print(*notes, sep="\n", file=sys.stderr)
    return ExitCode.DAMAGE if missing else ExitCode.OK


def _warn_of_unknown_names(command: Journeys, lake: Lake) -> None:
    """Warn of topics and tags that no message has, because their names may be mistyped."""
    messages, stuck = lake.table("messages"), (topic for topic, _ in command.stuck_after)
    topics = dict.fromkeys([*command.topic, *command.through, *command.missing, *stuck])
    sentences = [*unknown_topic_sentences(lake, messages, topics), *unknown_tag_sentences(messages, command.tag)]
    for sentence in sentences:
        print_warning("commitlake journeys", sentence)


def _show_paths(command: Journeys, answer: JourneysAnswer, missing_data_sentences: Sequence[str]) -> None:
    from commitlake.jobs.journeys import report

    rows = report.paths_with_shares(answer, command.limit or None)
    _write_rows(command, rows, report.PATH_COLUMNS, missing_data_sentences)
    if command.output == "table" and rows and command.show is None:
        print()
        _show_hops(command, answer, ())


def _show_hops(command: Journeys, answer: JourneysAnswer, missing_data_sentences: Sequence[str]) -> None:
    from commitlake.jobs.journeys import report

    hops = answer.hops()
    shown = hops[: command.limit or None]
    _write_rows(command, shown, report.HOP_COLUMNS, missing_data_sentences)
    if len(shown) < len(hops) and not command.quiet:
        print(f"the first {len(shown):,} of {len(hops):,} hops are shown, --limit 0 shows all", file=sys.stderr)


def _misfit_criteria(command: Journeys, known_times: NewestRecordTimes) -> MisfitRules:
    from commitlake.pipelines.journeys.misfits import MisfitRules

    return MisfitRules(known_times.until, command.through, command.missing, command.stuck_after, command.unexpected)


def _show_keys(
    command: Journeys, answer: JourneysAnswer, known_times: NewestRecordTimes, missing_data_sentences: Sequence[str]
) -> None:
    from commitlake.jobs.journeys import report

    found = answer.find_misfit_keys(_misfit_criteria(command, known_times), command.limit or None)
    _write_rows(command, found.rows, report.KEY_COLUMNS, missing_data_sentences)
    if not command.quiet:
        count = found.count
        shown = f"; the first {command.limit:,} are shown, --limit 0 shows all" if 0 < command.limit < count else ""
        print(f"{count:,} of {format_count(answer.key_counts['keys'], 'key')}{shown}", file=sys.stderr)


def _write_rows(
    command: Journeys,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[Column],
    missing_data_sentences: Sequence[str],
) -> None:
    from commitlake.jobs.report.rows_output import write_rows

    plain = (dict(row) for row in rows)
    first = list(islice(plain, 1))
    names: Sequence[str] = columns
    if command.output == "csv":
        names = list(first[0]) if first else [column.key for column in columns]
    write_rows(command.output, chain(first, plain), names, missing_data_sentences)


def _note_sentences(
    answer: JourneysAnswer, question: JourneysQuestion, known_times: NewestRecordTimes
) -> Iterator[str]:
    """Yield sentences on the time range that the figures cover, and on keys and paths that are incomplete."""
    counts = answer.key_counts
    began = (
        f"{format_count(counts['keys'], 'key')} began from {time_text(question.since)} to {time_text(question.until)}"
    )
    known = time_text(known_times.until)
    yield f"{began}; records are read up to {time_text(question.read_end)}, and known up to {known}"
    if counts["began_before"]:
        before = format_count(counts["began_before"], "more key", "more keys")
        yield f"{before} began before, and {'is' if counts['began_before'] == 1 else 'are'} not shown"
    if counts["is_cut"]:
        of_keys = f"paths of keys with more than {question.max_steps:,} messages are cut ({counts['is_cut']:,})"
        yield f"{of_keys}: a topic that such a path lacks may come after the cut"
    if counts["order_uncertain"]:
        of_keys = f"the order of some messages is not certain, of {format_count(counts['order_uncertain'], 'key')}"
        yield f"{of_keys}: a broker's clock was set back"
    for broker, newest in known_times.older.items():
        yield f"{broker} has no record after {time_text(newest)} in the lake: later messages may not be archived yet"


build_parser, main = Journeys.parser, Journeys.main
