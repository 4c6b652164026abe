"""Show messages and bytes per second of any past time, by topic, queue, tag, kind or producer.

    commitlake tps --lake /data/lake --from -1d --window 1h

Reads `topic_minutes` of a lake; for windows shorter than a minute, and for producers, `messages`; for the outcomes of
transactions, `edges`. With `--store` it reads a store's log instead, once, and stores nothing. Writes rows to standard
output, and on standard error their time range and missing data. It starts no JVM, unless `--spark` is given, for
billions of rows.

Exit codes: 0, also if there is no message; 2 for a wrong lake, store or option, or if `topic_minutes` lacks archive
runs; 3 for a damaged table, a log with damaged ranges, or a time of which the lake has lost messages.
If only `edges` is damaged, all other figures are printed,
and the exit code is 3 only if outcomes of transactions are columns of the answer, or part of its page.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import damage_message
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.jobs.report.text_blocks import block_lines
from commitlake.jobs.tps import notes
from commitlake.jobs.tps.arguments import (
    COMPARED,
    DELAYED,
    HOT_KEYS,
    HOT_QUEUES,
    TITLE,
    TpsOptions,
    check_options,
    parse_group_names,
)
from commitlake.jobs.tps.rates_source import TpsSource, open_tps_source
from commitlake.pipelines.tps.rates_query import MESSAGES, MINUTE, SECOND, CountedTable, RatesQuestion, round_time
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import EPOCH, add_capped, format_iso_time

if TYPE_CHECKING:
    from commitlake.jobs.report.page_file import PageFile
    from commitlake.pipelines.tps.transaction_outcomes import ReadOutcomes
    from commitlake.schemas.report import Notice, Report

_SHOWN = ("messages", "messages_per_s", "bytes_per_s")
_ALSO = ("sent", "retries", "dead_letters", "prepared", "committed", "clock_skew")
OUTCOME_COLUMNS = ("rolled_back", "given_up", "open")
"""Columns of the single row of `--by none`: transactions by outcome, from `edges`."""
_COUNTED = ("counted_from", "counted_to")
"""Columns for programs: the time that a row's figures cover, which is longer than requested if it had to be rounded."""
_MADE_PLAIN = ("window_start", "peak_at", "oldest_overdue", *_COUNTED)


@dataclass(frozen=True, kw_only=True)
class Tps(TpsOptions):
    """The command `tps`, which shows how many messages and bytes per second brokers stored."""

    def run(self) -> ExitCode:
        """Compute the message rates, print them, and report what is missing."""
        started = time.monotonic()
        check_options(self)
        if self.show == HOT_KEYS:
            return _show_hot_keys(self, started)
        if self.show == DELAYED:
            return _show_delayed_messages(self, started)
        if self.show == HOT_QUEUES:
            return _show_hot_queues(self, started)
        return _show_rates(self, started)


def _show_rates(command: TpsOptions, monotonic_start: float) -> ExitCode:
    option, place = command.source_option
    with command.open_page("tps", TITLE, [(option.removeprefix("--").capitalize(), place)]) as file:
        return _print_rates_and_page(file, command, monotonic_start)


def _print_rates_and_page(page_file: PageFile | None, command: TpsOptions, monotonic_start: float) -> ExitCode:
    """Print message rates, and also write them to an HTML page if a file is given."""
    from commitlake.pipelines.tps.rates import QUANTILES, Rates

    by = parse_group_names(command.by)
    table = _choose_table(command, by)
    if table is MESSAGES and command.percentiles:
        raise JobError(
            "--percentiles works only with windows of whole minutes, and not with --by producer",
            "give a --window such as 1m, and other groups",
        )
    with open_tps_source(command, table, COMPARED.get(command.compare or "")) as source:
        question = _make_rates_question(command, by, source)
        if question is None:
            return _report_no_messages(source, page_file)
        rates = Rates(source.lake, source.coverage, command.counting_engine)
        columns = _output_columns(question, QUANTILES if command.percentiles else ())
        if command.compare:
            from commitlake.pipelines.tps import comparison

            both = comparison.Comparison(rates, question, COMPARED[command.compare])
            rows = both.comparison_rows(has_quantiles=command.percentiles)
            columns += comparison.COLUMNS
        else:
            rows = rates.read_rates(question, has_quantiles=command.percentiles)
        totals = notes.sum_columns(rows, (*_ALSO, "messages", "other_tags"))
        has_outcomes = not by and question.window is None
        needs_outcomes = has_outcomes or page_file is not None
        outcomes = _read_transaction_outcomes(command, source, question, totals["prepared"], is_needed=needs_outcomes)
        if has_outcomes:
            columns += OUTCOME_COLUMNS
            for row in rows:
                row |= {name: getattr(outcomes.found, name, None) for name in OUTCOME_COLUMNS}
        shown, groups = _select_largest_groups(rows, by, command.top)
        columns += () if command.output == "table" else _COUNTED
        missing = _warn_of_lost_messages(command, source, question)
        _print_rows(command, [_add_counted_times(row, question) for row in shown], columns, missing)
        notices = [*notes.coverage_notices(question, source), *notes.tag_notices(totals, question, source)]
        if command.step in (None, command.window):
            notices += notes.rate_notices(totals, outcomes.found, question, source)
        if command.compare:
            silent = comparison.find_silent_groups(question, rows)
            notices += notes.comparison_notices(question, source, COMPARED[command.compare], silent)
        widened = notes.widened_time_range_note(question, command.start, command.end, _time_unit(command))
        if page_file is not None:
            page_file.write(_rates_page(command, source, question, outcomes, notices, widened))
        _explain_empty_result(command, source, rows)
        if not command.quiet:
            lines = [*notes.top_limit_note(command.top or groups, groups, "groups"), *widened]
            _print_table_notes(lines, notices, question, table, source, monotonic_start)
        return ExitCode.DAMAGE if needs_outcomes and outcomes.damage else _exit_code(source, missing)


def _read_transaction_outcomes(
    command: TpsOptions, source: TpsSource, question: RatesQuestion, prepared_count: int, *, is_needed: bool
) -> ReadOutcomes:
    """Return the numbers of committed and rolled-back transactions, if they are needed; warn if `edges` is damaged."""
    from commitlake.pipelines.tps.transaction_outcomes import ReadOutcomes, read_outcomes_if_intact

    if not is_needed and command.quiet:
        return ReadOutcomes()
    outcomes = read_outcomes_if_intact(source.lake, question, prepared_count, command.counting_engine)
    if outcomes.damage:
        unknown = "how many transactions were rolled back, were given up or are open is not known"
        print_warning("commitlake tps", f"{unknown}: {damage_message(source.lake, 'edges', outcomes.damage)}")
    return outcomes


def _rates_page(
    command: TpsOptions,
    source: TpsSource,
    question: RatesQuestion,
    outcomes: ReadOutcomes,
    notices: Sequence[Notice],
    widened_time_notes: Sequence[str],
) -> Report:
    from commitlake.jobs.tps.report import rates_report
    from commitlake.pipelines.tps.report import make_report

    compared = COMPARED.get(command.compare or "")
    report = make_report(source.lake, source.coverage, question, command.counting_engine, compared)
    return rates_report(report, source, outcomes, notices, widened_time_notes)


def _show_hot_queues(command: TpsOptions, monotonic_start: float) -> ExitCode:
    from commitlake.pipelines.tps.hot_keys import QUEUE_COLUMNS, rank_queues

    by = ["broker", "topic", "queue"]
    table = _choose_table(command, by)
    with open_tps_source(command, table) as source:
        question = _make_rates_question(command, by, source)
        if question is None:
            return _report_no_messages(source)
        rows = rank_queues(source.lake, source.coverage, question, command.counting_engine)
        shown = rows[: command.top] if command.top else rows
        missing = _warn_of_lost_messages(command, source, question)
        _print_rows(command, shown, QUEUE_COLUMNS, missing)
        _explain_empty_result(command, source, rows)
        if not command.quiet:
            lines = notes.top_limit_note(len(shown), len(rows), "queues")
            lines.append(
                "skew is a queue's messages divided by the mean of the topic's non-empty queues on that broker"
            )
            _print_table_notes(
                lines, notes.coverage_notices(question, source), question, table, source, monotonic_start
            )
        return _exit_code(source, missing)


def _show_hot_keys(command: TpsOptions, monotonic_start: float) -> ExitCode:
    from commitlake.pipelines.tps.hot_keys import KEY_COLUMNS, find_hot_keys

    with open_tps_source(command, MESSAGES, extra_columns=["keys"]) as source:
        question = _make_rates_question(command, [], source)
        if question is None:
            return _report_no_messages(source)
        found = find_hot_keys(source.lake, question)
        shown = found.rows[: command.top] if command.top else found.rows
        missing = _warn_of_lost_messages(command, source, question)
        _print_rows(command, shown, KEY_COLUMNS, missing)
        _explain_empty_result(command, source, found.rows)
        if not command.quiet:
            lines = notes.top_limit_note(len(shown), len(found.rows), "keys")
            counted = f"{format_count(found.total, 'message key was', 'message keys were')} counted"
            bounds = (
                f"a figure may be too large by up to {found.error:,}, and every key with more than "
                f"{format_count(found.error, 'message')} is listed"
            )
            lines.append(f"{counted}; {bounds if found.error else 'all figures are exact'}")
            _print_table_notes(
                lines, notes.coverage_notices(question, source), question, MESSAGES, source, monotonic_start
            )
        return _exit_code(source, missing)


def _show_delayed_messages(command: TpsOptions, monotonic_start: float) -> ExitCode:
    from commitlake.pipelines.tps.delayed_messages import COLUMNS, DEFAULT_SEGMENT_LIFE, NEEDED, count_delayed_messages

    with open_tps_source(command, MESSAGES, extra_columns=NEEDED, reads_to_end=True) as source:
        question = _make_rates_question(command, [], source)
        if question is None:
            return _report_no_messages(source)
        life = command.segment_life or DEFAULT_SEGMENT_LIFE
        rows = count_delayed_messages(source.lake, source.coverage, question, life, has_config=not source.stores)
        shown = rows[: command.top] if command.top else rows
        missing = _warn_of_lost_messages(command, source, question)
        _print_rows(command, shown, COLUMNS, missing)
        if not command.quiet:
            lines = notes.top_limit_note(len(shown), len(rows), "rows")
            lines += _delayed_message_notes(rows)
            coverage = notes.coverage_notices(question, source)
            _print_table_notes(lines, coverage, question, MESSAGES, source, monotonic_start)
        return _exit_code(source, missing)


def _delayed_message_notes(rows: Sequence[Row]) -> list[str]:
    totals = notes.sum_columns(rows, ("messages", "overdue", "outlives_segment", "without_id"))
    lines = []
    if totals["overdue"]:
        lines.append(
            f"{totals['overdue']:,} of {format_count(totals['messages'], 'message')} are overdue: their time has "
            "passed, but their own topic has no copy"
        )
    if totals["outlives_segment"]:
        lines.append(
            f"{format_count(totals['outlives_segment'], 'message waits', 'messages wait')} longer than a segment is "
            "kept: a broker may delete them before their time, see --segment-life"
        )
    if totals["without_id"]:
        lines.append(
            f"{format_count(totals['without_id'], 'message has', 'messages have')} no client message id: delivery "
            "cannot be checked"
        )
    return lines


def _print_table_notes(
    note_lines: Sequence[str],
    notices: Iterable[Notice],
    question: RatesQuestion,
    table: CountedTable,
    source: TpsSource,
    monotonic_start: float,
) -> None:
    counted = question.divide_by_minute() if table is question.counted_table else ()
    tables = " and ".join(dict.fromkeys(part.counted_table.name for part in counted)) or table.name
    last = notes.time_range_note(question, tables, source, time.monotonic() - monotonic_start)
    for line in (*note_lines, *block_lines(notices), last):
        print_line(line)


def _report_no_messages(source: TpsSource, page_file: PageFile | None = None) -> ExitCode:
    from commitlake.jobs.tps.report import empty_report

    report = empty_report(source)
    print_line(report.verdict.sentence)
    if page_file is not None:
        page_file.write(report)
    return _exit_code(source)


def _exit_code(source: TpsSource, missing_data_sentences: Sequence[str] = ()) -> ExitCode:
    return ExitCode.DAMAGE if missing_data_sentences or any(source.damaged.values()) else ExitCode.OK


def _warn_of_lost_messages(command: TpsOptions, source: TpsSource, question: RatesQuestion) -> list[str]:
    """Warn of lost messages in the requested time; return the warnings as sentences."""
    if source.stores:
        return []
    earlier = COMPARED.get(command.compare or "")
    start = question.start if earlier is None else question.shift_earlier(earlier).start
    return warn_of_lost_ranges("tps", source.lake, question.selection.brokers, start, question.end)


def _time_unit(command: TpsOptions) -> datetime.timedelta:
    """Return the unit of time to which the start and end of the requested time range are rounded."""
    return command.step or command.window or (MINUTE if command.percentiles else SECOND)


def _choose_table(command: TpsOptions, group_columns: Sequence[str]) -> CountedTable:
    """Return the table in which messages are counted; if a store is read, only this table is made from its log."""
    unit = _time_unit(command)
    start = round_time(command.start or EPOCH, unit)
    end = start + 2 * MINUTE if command.end is None else round_time(command.end, unit, rounds_up=True)
    question = RatesQuestion(group_columns, min(start, end), end, command.window, command.step)
    is_cut = command.store is not None and command.window is None and len(question.divide_by_minute()) > 1
    return MESSAGES if is_cut else question.counted_table


def _make_rates_question(command: TpsOptions, group_columns: Sequence[str], source: TpsSource) -> RatesQuestion | None:
    """Return what to count, as the options say, with times extended to whole units; None if there are no messages."""
    span = source.coverage.whole_span
    if span is None:
        return None
    question = RatesQuestion(
        by=group_columns,
        start=command.start or span.start,
        end=command.end or max(span.end, add_capped(command.start or span.start, MINUTE)),
        window=command.window,
        step=command.step,
        selection=replace(command.selection, start=None, end=None),
    )
    unit = _time_unit(command)
    aligned = replace(
        question,
        start=round_time(question.start, unit),
        end=round_time(question.end, unit, rounds_up=True),
        is_by_second=bool(source.stores) and source.table is MESSAGES,
    )
    if aligned.start >= aligned.end:
        raise JobError(f"--from {format_iso_time(question.start)} is not before --to {format_iso_time(question.end)}",
                       "exchange them")  # fmt: skip
    return aligned


def _output_columns(question: RatesQuestion, quantiles: Sequence[str]) -> list[str]:
    times = ["window_start"] if question.window is not None else []
    peaks = [] if question.window is not None else ["peak_per_s", "peak_at"]
    return [*times, *question.by, *_SHOWN, *peaks, *quantiles, *_ALSO, "archived"]


def _add_counted_times(row: Row, question: RatesQuestion) -> Row:
    """Return a row with two more values: the start and the end of the time range in which it counts messages."""
    start = row.get("window_start", question.start)
    return row | {"counted_from": start, "counted_to": start + (question.window or question.end - question.start)}


def _print_rows(
    command: TpsOptions, rows: Sequence[Row], columns: Sequence[str], missing_data_sentences: Sequence[str]
) -> None:
    titles = notes.rate_columns(columns) if command.output == "table" else columns
    write_rows(command.output, (_format_output_row(row, columns) for row in rows), titles, missing_data_sentences)


def _select_largest_groups(
    rows: Sequence[Row], group_columns: Sequence[str], max_groups: int
) -> tuple[Sequence[Row], int]:
    """Return the rows of the groups with the most messages, and the number of all groups."""
    totals: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = tuple(row[name] for name in group_columns)
        totals[key] = totals.get(key, 0) + max(row["messages"] or 0, row.get("messages_before") or 0)
    if not max_groups or len(totals) <= max_groups:
        return rows, len(totals)
    largest = set(sorted(totals, key=lambda key: -totals[key])[:max_groups])
    return [row for row in rows if tuple(row[name] for name in group_columns) in largest], len(totals)


def _format_output_row(row: Row, columns: Sequence[str]) -> Row:
    """Return a row for output: times as text, rates with up to three digits after the point."""
    found = {name: row[name] for name in columns}
    for name in _MADE_PLAIN:
        if found.get(name) is not None:
            found[name] = format_iso_time(found[name])
    for name, value in found.items():
        if isinstance(value, float):
            found[name] = round(value, 3)
    return found


def _explain_empty_result(command: TpsOptions, source: TpsSource, rows: Sequence[Row]) -> None:
    is_empty = not any(row["messages"] for row in rows)
    if is_empty or max(len(command.topic), len(command.tag)) > 1:  # of several names, one may be misspelled
        source.warn_of_unknown_names(command.topic, command.tag, command.queue if is_empty else [])


build_parser, main = Tps.parser, Tps.main
