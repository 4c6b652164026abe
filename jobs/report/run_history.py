"""The newest archive runs of a lake on a page: time, messages, duration and problems of each."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import clean_engine_message
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.pipelines.archive.past_runs import MAX_RUNS, PastRun, read_past_runs
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.report import Badge, Block, Cell, Kind, Paragraph, Section, Table, Text
from commitlake.schemas.report_columns import Column


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Newest archive runs of a lake, or the reason why they cannot be read.

    Attributes:
        runs: The newest runs, latest first.
        problem: Why the runs could not be read; empty if they could.
    """

    runs: Sequence[PastRun] = ()
    problem: str = ""


def read_run_history(lake: Lake) -> RunHistory:
    """Read the newest archive runs of a lake; if that fails, return the reason."""
    try:
        return RunHistory(read_past_runs(lake))
    except (CommitLakeError, DeltaError, pa.ArrowException, OSError) as error:
        return RunHistory(problem=clean_engine_message(str(error)))


def history_section(history: RunHistory, current_run_id: str = "") -> Section:
    """Return the section of a page that lists a lake's archive runs.

    Args:
        current_run_id: Id of the run that the page is about.
    """
    if history.problem:
        content: Block = Paragraph(Badge(Kind.WARNING), f" Earlier runs could not be read: {history.problem}")
    elif not history.runs:
        content = Paragraph("No archive run of this lake has finished yet.")
    else:
        caption = f"The newest {MAX_RUNS} archive runs" if len(history.runs) >= MAX_RUNS else "All archive runs"
        content = Table.of(
            caption, _COLUMNS, [_run_cells(run, is_current_run=run.run_id == current_run_id) for run in history.runs]
        )
    return Section("runs", "Archive runs", [content])


def seconds_text(seconds: float) -> str:
    """Format a duration: `0.4 s`, `12 s`, `1.5 h`."""
    return f"{seconds:.1f} s" if seconds < 10 else duration_text(datetime.timedelta(seconds=seconds))


_COLUMNS = (
    Column("run"), Column("ended (UTC)", key="ended"), Column("outcome"), Column("messages", is_number=True),
    Column("log", is_number=True, text=size_text), Column("unreadable", is_number=True), Column("gaps", is_number=True),
    Column("expectations not met", key="unmet", is_number=True), Column("took", is_number=True, text=seconds_text),
)  # fmt: skip


def _run_cells(run: PastRun, *, is_current_run: bool) -> dict[str, object]:
    number = "stopped" if run.sequence is None else f"{run.sequence}"
    return {
        "run": f"{number} (this run)" if is_current_run else number,
        "ended": run.ended_at,
        "outcome": Cell(_outcome_text(run)),
        "messages": run.messages,
        "log": run.bytes,
        "unreadable": run.quarantined,
        "gaps": run.gaps,
        "unmet": "not judged" if run.unmet is None else run.unmet,
        "took": run.seconds,
    }


def _outcome_text(run: PastRun) -> Text:
    if run.is_stopped:
        return Badge(Kind.CRITICAL, "stopped")
    if run.quarantined or run.gaps:
        found = Badge(Kind.CRITICAL, "loss or damage")
    elif run.unmet:
        found = Badge(Kind.WARNING, "warnings")
    else:
        found = Badge(Kind.GOOD, "sound" if run.unmet is not None else "archived")
    return (found, " finished by a later run") if run.is_recovered else found
