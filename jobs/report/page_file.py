"""The file of a job's page, the page of a failed job, and texts that all pages have."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.command import ErrorMessageAndHint, explain_error, is_error_or_panic
from commitlake.jobs.cli.output_files import check_output_file
from commitlake.jobs.cli.process import OutputError
from commitlake.jobs.report.html_page import write_page
from commitlake.jobs.report.run_history import history_section, read_run_history
from commitlake.jobs.report.value_decoding import time_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Block, Kind, Name, Paragraph, Report, Section, Strong, Verdict
from commitlake.schemas.times import format_time

_MAX_SENTENCE = 240
_MAX_LINES = 40
_MAX_LINE = 2000
_MAX_NAME = 120
_CODES: Mapping[int, str] = {
    ExitCode.FAILED: "an internal error, or a transient one: retry",
    ExitCode.USAGE: "wrong usage, path or lake",
    ExitCode.DAMAGE: "damage or loss",
    ExitCode.REFUSED: "refused",
}
Facts = Sequence[tuple[str, str]]


class PageFile:
    """File into which a job writes its HTML page.

    Args:
        path: Path of the file; an existing file is replaced once the page is complete.

    Attributes:
        is_written: Whether this job has written a page.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_written = False

    def write(self, report: Report, lake: Lake | None = None) -> None:
        """Write a report as an HTML page; if a lake is given, with a section about its archive runs at the end."""
        if lake is not None:
            report = replace(report, sections=[*report.sections, history_section(read_run_history(lake))])
        write_page(self.path, report)
        self.is_written = True


def check_page_file(path: Path | None) -> PageFile | None:
    """Check that an HTML page can be written to a path, and return its file; None if no page is requested.

    Raises:
        JobError: For a file that could not be written at the end of the job.
    """
    if path is None:
        return None
    check_output_file("--html", path)
    return PageFile(path)


@contextmanager
def write_page_on_failure(
    page_file: PageFile | None,
    job: str,
    title: str,
    facts: Facts,
    lake: Lake | None = None,
    *,
    shown_errors: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """If the block fails, replace the page by one about the error, so that an old page is not mistaken for this run's.

    Args:
        page_file: File of the page; None for no page.
        job: Name of the job.
        title: Title of the job's pages.
        facts: Known facts about the run.
        lake: Lake whose archive runs are shown, as far as they can be read.
        shown_errors: Errors that are already on the page that the job has written.
    """
    try:
        yield
    except BaseException as error:
        is_shown = page_file is not None and page_file.is_written and isinstance(error, shown_errors)
        # A closed standard output, as with head, is not a failure.
        is_failure = is_error_or_panic(error) and not isinstance(error, OutputError)
        if page_file is not None and is_failure and not is_shown:
            with suppress(OSError):  # the error itself is reported in any case
                page_file.write(failure_report(job, title, facts, explain_error(error), lake))
        raise


def failure_report(
    job: str, title: str, facts: Facts, error_text: ErrorMessageAndHint, lake: Lake | None = None
) -> Report:
    """Return the report, for an HTML page, on a job that has failed."""
    first, *others = error_text.message.strip().splitlines() or ["no message"]
    sentence = first if len(first) <= _MAX_SENTENCE else f"{first[:_MAX_SENTENCE]}…"
    code = int(ExitCode.FAILED if error_text.exit_code is None else error_text.exit_code)
    sections = []
    if others or error_text.hint or sentence != first:
        lines: list[Block] = [Paragraph(Name(line.strip()[:_MAX_LINE])) for line in [first, *others][:_MAX_LINES]]
        if len(others) >= _MAX_LINES:
            lines.append(Paragraph(f"{len(others) + 1 - _MAX_LINES:,} more lines are left out of this page."))
        hint = [Paragraph(Strong("What to do: "), error_text.hint)] if error_text.hint else []
        sections.append(Section("error", "The error", [*lines, *hint]))
    if lake is not None:
        sections.append(history_section(read_run_history(lake)))
    exit_code = f"{code}, {_CODES[code]}" if code in _CODES else f"{code}"
    verdict = Verdict(Kind.CRITICAL, f"Failed: {sentence}", "Failed")
    return Report(title, verdict, [*facts, ("Exit code", exit_code)], sections, job)


def period_text(first: datetime.datetime | None, last: datetime.datetime | None) -> str:
    """Format a time range; a missing start or end is described in words."""
    if first is None and last is None:
        return "no message has a time"
    begin = "the beginning" if first is None else format_time(first)
    return f"{begin} to {'the end' if last is None else time_text(last)}"


def left_out_text(count: int, noun: str) -> str:
    """Return a sentence about the number of items that a page leaves out; empty for 0."""
    return f"{format_count(count, f'more {noun} is', f'more {noun}s are')} left out of this page." if count > 0 else ""


def join_names(names: Sequence[str], max_shown: int = 12) -> str:
    """Return names separated by commas; of many, only the first ones and the number of the others."""
    rest = len(names) - max_shown
    shortened = [name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…" for name in names[:max_shown]]
    return ", ".join(shortened) + (f" and {rest:,} more" if rest > 0 else "")
