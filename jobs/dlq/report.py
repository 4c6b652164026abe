"""Causes of dead letters: as rows for a table, JSON and CSV, and as a chart over time."""

from __future__ import annotations

import base64
import datetime
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shutil import get_terminal_size
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.printable import escape_line
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.terminal import EscapingStream, print_text
from commitlake.jobs.dlq.arguments import DlqOptions
from commitlake.jobs.dlq.selection import ChosenDeadLetters, choose_dead_letters
from commitlake.jobs.report.rows_output import PIPE_WIDTH, Row, write_json_document, write_table, write_varying_rows
from commitlake.pipelines.dead_letters.causes import Cause, DeadLetters, SampleLetter
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import to_display_zone

MAX_ROWS = 50
"""Largest number of causes in the table; JSON has all of them."""
MAX_BARS = 48
BAR_WIDTH = 50
_BODY_WIDTH = 300
_TIME_WIDTH = len("2026-11-20 14:00  ")
_HOUR = datetime.timedelta(hours=1)
_STEPS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)
"""Possible widths of a bar in hours."""
_SAMPLES_OF_ONE = 3
CAUSE_COLUMNS = (
    Column("n"), Column("cause", 2), Column("group"), Column("topic"), Column("tag", 5), Column("attempts", 4),
    Column("reason", 1), Column("shape", 8), Column("letters"), Column("again", 7), Column("first", 6),
    Column("last", 3),
)  # fmt: skip


def print_causes(arguments: DlqOptions, lake: Lake) -> ExitCode:
    """Show the causes of dead letters, or the details of one cause."""
    samples = arguments.samples if arguments.samples is not None else _SAMPLES_OF_ONE if arguments.cause else 0
    chosen = choose_dead_letters(arguments, lake, max_samples_per_cause=samples)
    letters = chosen.letters or DeadLetters([], 0)
    shown = [chosen.cause] if chosen.cause is not None else list(enumerate(letters.causes, 1))
    if arguments.format == "json":
        _print_causes_as_json(chosen, shown, samples)
        return chosen.exit_code
    if arguments.format in {"jsonl", "csv"}:
        write_varying_rows(arguments.format, [_full_cause_row(number, cause, samples) for number, cause in shown])
        return chosen.exit_code
    if not letters.messages:
        if not arguments.quiet:
            print("no archived dead letter matches", file=sys.stderr)
        return chosen.exit_code
    if chosen.cause is not None:
        _print_cause(*chosen.cause, samples)
        return chosen.exit_code
    write_table((_cause_row(number, cause) for number, cause in shown[:MAX_ROWS]), CAUSE_COLUMNS, sys.stdout)
    if samples:
        for number, cause in shown[:MAX_ROWS]:
            print(f"\ncause {number}")
            _print_samples(cause.samples[:samples])
    print()
    _print_hour_chart(cause.hours for _, cause in shown)
    if not arguments.quiet:
        print("\n".join(_summary_lines(letters, len(shown))), file=sys.stderr)
    return chosen.exit_code


def _cause_row(number: int, cause: Cause) -> Row:
    return {
        "n": number,
        "cause": cause.digest,
        "group": cause.group,
        "topic": cause.topic,
        "tag": cause.tag,
        "attempts": cause.attempts,
        "reason": cause.reason,
        "shape": cause.shape,
        "letters": cause.messages,
        "again": cause.replayed,
        "first": time_text(cause.first),
        "last": time_text(cause.last),
        "newest": cause.example,
    }


def _summary_lines(letters: DeadLetters, shown_count: int) -> Iterator[str]:
    counted = f"{format_count(letters.messages, 'dead letter')} of {format_count(len(letters.groups), 'group')}"
    yield f"{counted}, by {format_count(len(letters.causes), 'cause')}"
    if shown_count > MAX_ROWS:
        yield f"the largest {MAX_ROWS} causes are shown; --format json has {shown_count:,}"
    if letters.left_out_count:
        rarer = format_count(letters.left_out_count, "of them has a rarer cause", "of them have rarer causes")
        yield f"{rarer}, counted together"
    if letters.replayed:
        yield f"{letters.replayed:,} of them died again after a replay (column 'again')"


def _print_cause(number: int, cause: Cause, max_samples: int) -> None:
    row = _cause_row(number, cause) | {"shape": None}
    for name in CAUSE_COLUMNS:
        if row[name] is not None:
            print_text(f"{name:<10}{escape_line(str(row[name]))}")
    for part in (cause.shape or "").split(", ") if cause.shape else ():
        print_text(f"{'shape':<10}{escape_line(part)}")
    print()
    _print_hour_chart([cause.hours])
    _print_samples(cause.samples[:max_samples])


def _print_samples(samples: Iterable[SampleLetter]) -> None:
    for sample in samples:
        keys = f" keys {' '.join(sample.keys)}" if sample.keys else ""
        print_text(f"\n{time_text(sample.stored_at)} {sample.msg_id}{escape_line(keys)}")
        if sample.body is not None:
            text = sample.body[:_BODY_WIDTH].decode(errors="replace")
            more = f" … ({sample.body_size:,} bytes)" if (sample.body_size or 0) > _BODY_WIDTH else ""
            shown = escape_line(text) if isinstance(sys.stdout, EscapingStream) else text
            print_text(f"    {shown}{more}")


def _print_hour_chart(counts_by_hour: Iterable[Mapping[datetime.datetime, int]]) -> None:
    """Print a bar chart of counts by hour; a bar covers several hours if there would be more than `MAX_BARS` bars."""
    counts: dict[datetime.datetime, int] = {}
    for one in counts_by_hour:
        for hour, count in one.items():
            counts[hour] = counts.get(hour, 0) + count
    width = get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    for line in bar_chart_lines(counts, width):
        print(line)


def bar_chart_lines(counts_by_hour: Mapping[datetime.datetime, int], width: int = PIPE_WIDTH) -> Iterator[str]:
    """Yield a line for each interval, with a bar whose length shows its count.

    Args:
        counts_by_hour: number of dead letters by hour.
        width: largest width of a line.
    """
    if not counts_by_hour:
        return
    first, last = min(counts_by_hour), max(counts_by_hour)
    hours = int((last - first) / _HOUR) + 1
    step = next((step for step in _STEPS if hours <= step * MAX_BARS), -(-hours // MAX_BARS))
    bars = [0] * (-(-hours // step))
    for hour, count in counts_by_hour.items():
        bars[int((hour - first) / _HOUR) // step] += count
    most = max(bars)
    room = max(1, min(BAR_WIDTH, width - _TIME_WIDTH - len(f" {most:,}")))
    yield f"dead letters {'per hour' if step == 1 else f'in {step} hours'}, {to_display_zone(first):%Z}"
    for number, count in enumerate(bars):
        at = to_display_zone(first + number * step * _HOUR)
        bar = "#" * -(-count * room // most)
        yield f"{at:%Y-%m-%d %H:%M}  {bar:<{room}} {count:,}".rstrip()


def _print_causes_as_json(
    chosen_letters: ChosenDeadLetters, shown_causes: Sequence[tuple[int, Cause]], max_samples: int
) -> None:
    letters = chosen_letters.letters or DeadLetters([], 0)
    write_json_document(
        {
            "messages": letters.messages,
            "left_out": letters.left_out_count,
            "causes": [_full_cause_row(number, cause, max_samples) for number, cause in shown_causes],
            **({"missing": list(chosen_letters.missing)} if chosen_letters.missing else {}),
        }
    )


def _full_cause_row(number: int, cause: Cause, max_samples: int) -> Row:
    return _cause_row(number, cause) | {
        "hours": {time_text(hour): count for hour, count in cause.hours.items()},
        "samples": [_sample_json_object(sample) for sample in cause.samples[:max_samples]],
    }


def _sample_json_object(sample: SampleLetter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "msg_id": sample.msg_id,
        "stored_at": time_text(sample.stored_at),
        "keys": list(sample.keys),
        "body_size": sample.body_size,
        "body": None,
        "body_base64": None,
    }
    if sample.body is not None:
        is_cut = len(sample.body) < (sample.body_size or 0)
        try:
            found["body"] = sample.body.decode()
        except UnicodeDecodeError as error:
            if is_cut and error.end >= len(sample.body) - 3:  # the sample was cut within a character
                found["body"] = sample.body[: error.start].decode()
            else:
                found["body_base64"] = base64.b64encode(sample.body).decode()
    return found
