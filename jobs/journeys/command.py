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
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.journeys.journey_results import JourneysAnswer, NewestRecordTimes
    from commitlake.jobs.report.page_file import PageFile
    from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
    from commitlake.pipelines.journeys.misfits import MisfitRules
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
            page_file.write(_make_report(command, answer, known, notes, missing))
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
    rows = _paths_with_shares(answer, command.limit or None)
    _write_rows(command, rows, PATH_COLUMNS, missing_data_sentences)
    if command.output == "table" and rows and command.show is None:
        print()
        _show_hops(command, answer, ())


def _show_hops(command: Journeys, answer: JourneysAnswer, missing_data_sentences: Sequence[str]) -> None:
    hops = answer.hops()
    shown = hops[: command.limit or None]
    _write_rows(command, shown, HOP_COLUMNS, missing_data_sentences)
    if len(shown) < len(hops) and not command.quiet:
        print(f"the first {len(shown):,} of {len(hops):,} hops are shown, --limit 0 shows all", file=sys.stderr)


def _paths_with_shares(answer: JourneysAnswer, limit: int | None) -> list[dict[str, Any]]:
    """Return the most frequent paths from topic to topic, with the share of all keys that took them."""
    keys = max(answer.key_counts["keys"], 1)
    return [{**row, "share_percent": round(100 * row["keys"] / keys, 1)} for row in answer.paths(limit)]


def _misfit_criteria(command: Journeys, known_times: NewestRecordTimes) -> MisfitRules:
    from commitlake.pipelines.journeys.misfits import MisfitRules

    return MisfitRules(known_times.until, command.through, command.missing, command.stuck_after, command.unexpected)


def _show_keys(
    command: Journeys, answer: JourneysAnswer, known_times: NewestRecordTimes, missing_data_sentences: Sequence[str]
) -> None:
    found = answer.find_misfit_keys(_misfit_criteria(command, known_times), command.limit or None)
    _write_rows(command, found.rows, KEY_COLUMNS, missing_data_sentences)
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


def _make_report(
    command: Journeys,
    answer: JourneysAnswer,
    known_times: NewestRecordTimes,
    notes: Sequence[str],
    missing_data_sentences: Sequence[str],
) -> Report:
    from commitlake.jobs.journeys import report

    wanted = _misfit_criteria(command, known_times)
    paths = _paths_with_shares(answer, report.SHOWN_PATHS)
    found = answer.find_misfit_keys(wanted, report.MAX_KEYS) if wanted.has_conditions else None
    return report.journeys_report(
        report.JourneysPage(
            facts=[("Lake", command.lake), ("Time", notes[0])],
            counts=answer.key_counts,
            paths=paths,
            path_count=answer.path_count,
            examples=answer.first_keys_of_paths([row["path"] for row in paths], report.KEYS_OF_PATH),
            hops=answer.hops(),
            hop_columns=HOP_COLUMNS,
            misfits=None if found is None else list(found.rows),
            misfit_count=0 if found is None else found.count,
            has_reasons=wanted.needs_reason,
            through=wanted.through,
            key_columns=KEY_COLUMNS,
            notes=notes[1:],
            missing=missing_data_sentences,
            lake=command.lake,
        )
    )


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
