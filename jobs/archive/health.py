"""Report on the health of an archive: how recent it is, and what is missing."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.pipelines.archive.past_runs import PastRun
from commitlake.pipelines.archive_health.state import ArchiveState, MissingRanges, StoreState
from commitlake.schemas.counts import format_count
from commitlake.schemas.report import Bar, BarChart, Kind, Paragraph, Report, Section, Table, Verdict
from commitlake.schemas.times import format_time

Row = Mapping[str, Any]


def health_report(
    state: ArchiveState,
    missing: Iterable[MissingRanges],
    unmet: Sequence[Row],
    runs: Sequence[PastRun],
    now: datetime.datetime,
    late: datetime.timedelta | None = None,
) -> Report:
    """Return the report on the state of an archive.

    Args:
        missing: Ranges of logs that are not archived, by store and reason.
        unmet: Expectations that the last run did not meet.
        runs: The last runs.
        now: The current time.
        late: Age of the last run above which an archive is late; None if it is never late.
    """
    lacks = list(_missing_data_sentences(state, unmet))
    age = state.age(now)
    is_late = age is not None and late is not None and age > late
    kind = Kind.WARNING if is_late or age is None or lacks else Kind.GOOD
    whole = [f"Nothing is missing in the logs of {format_count(len(state.stores), 'store')}."] if state.stores else []
    sections = [
        Section("lacks", "What it lacks", [Paragraph(sentence) for sentence in lacks or whole]),
        Section("stores", "Stores", [Table.of_values("Stores", store_rows(state, now))]),
        Section("missing", "Missing", [
            Table.of_values("Ranges of logs that are not archived", missing_range_rows(missing))
        ]),
        Section("unmet", "Expectations", [
            Table.of_values("Expectations that the last run did not meet", unmet_expectation_rows(unmet))
        ]),
        Section("runs", "Runs", [
            Table.of_values("The last runs", archive_run_rows(runs)),
            BarChart("Messages added by each run", [Bar(format_time(run.ended_at), run.messages) for run in runs]),
            BarChart("Ranges of logs that a run could not archive", list(_lost_range_bars(runs))),
        ]),
    ]  # fmt: skip
    return Report("Health of the archive", Verdict(kind, _age_text(state, now, late)), [], sections, "archive")


def _age_text(state: ArchiveState, now: datetime.datetime, late: datetime.timedelta | None) -> str:
    age = state.age(now)
    if state.last_run is None or age is None:
        return "No archive run has found a message yet."
    is_late = late is not None and age > late
    verdict = (
        f"The archive is late, as it is older than {duration_text(late)}"
        if is_late and late
        else "The archive is on time"
    )
    return (
        f"{verdict}: the last run that found new messages ended {format_time(state.last_run)} UTC, "
        f"{duration_text(age)} ago."
    )


def _missing_data_sentences(state: ArchiveState, unmet: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each store with missing parts of its log, and one about unmet expectations."""
    lacking = [store for store in state.stores if not store.is_intact]
    for store in sorted(lacking, key=lambda one: -(one.quarantined.bytes + one.gaps.bytes)):
        yield f"{store.broker}: {_missing_ranges_text(store)}."
    critical = sum(row["severity"] == "critical" for row in unmet)
    if unmet:
        yield (
            f"The last run did not meet {format_count(len(unmet), 'expectation')}, {critical} of them critical; the "
            f"first is '{_replace_underscores(unmet[0]['expectation'])}'."
        )


def _lost_range_bars(runs: Sequence[PastRun]) -> Iterator[Bar]:
    for run in runs:
        for group, count in (("damaged", run.quarantined), ("deleted unarchived", run.gaps)):
            if count:
                yield Bar(format_time(run.ended_at), count, group)


def _missing_ranges_text(store: StoreState) -> str:
    parts = []
    if store.quarantined.count:
        ranges = format_count(store.quarantined.count, "range")
        parts.append(f"{ranges} of its log could not be read ({size_text(store.quarantined.bytes)})")
    if store.gaps.count:
        ranges = format_count(store.gaps.count, "range")
        parts.append(f"{ranges} of it were deleted before they were archived ({size_text(store.gaps.bytes)})")
    return ", and ".join(parts)


def store_rows(state: ArchiveState, now: datetime.datetime) -> Iterator[dict[str, Any]]:
    """Yield a table row for each store, with how far it is archived."""
    for store in state.stores:
        yield {
            "store": store.broker,
            "newest message": store.newest,
            "age": None if store.newest is None else duration_text(max(now - store.newest, datetime.timedelta())),
            "archived up to offset": f"{store.end:,}",
            "not readable": f"{store.quarantined.count:,} ({size_text(store.quarantined.bytes)})",
            "deleted unarchived": f"{store.gaps.count:,} ({size_text(store.gaps.bytes)})",
        }


def missing_range_rows(missing: Iterable[MissingRanges]) -> Iterator[dict[str, Any]]:
    """Yield a table row for each store and reason for which parts of its log are missing."""
    for one in missing:
        yield {
            "store": one.broker,
            "reason": _replace_underscores(one.reason),
            "ranges": f"{one.ranges:,}",
            "bytes": size_text(one.bytes),
            "first at offset": f"{one.first:,}",
        }


def unmet_expectation_rows(unmet: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield a row for each expectation that was not met."""
    for row in unmet:
        observed = None if row["observed_value"] is None else json.loads(row["observed_value"])
        yield {
            "severity": row["severity"],
            "suite": row["suite"],
            "expectation": _replace_underscores(row["expectation"]),
            "observed": observed,
            "rows that violate it": f"{row['unexpected_count'] or 0:,} of {row['judged_count'] or 0:,}",
        }


def archive_run_rows(runs: Iterable[PastRun]) -> Iterator[dict[str, Any]]:
    """Yield a table row for each archive run."""
    for run in runs:
        yield {
            "ended": run.ended_at,
            "took": None if run.seconds is None else duration_text(datetime.timedelta(seconds=run.seconds)),
            "stores": run.stores,
            "messages": f"{run.messages:,}",
            "log": size_text(run.bytes),
            "not readable": f"{run.quarantined:,}",
            "deleted unarchived": f"{run.gaps:,}",
            "not met": run.unmet,
            "state": _run_state_text(run),
        }


def _run_state_text(run: PastRun) -> str:
    if run.is_stopped:
        return "stopped by a critical expectation"
    return "finished by a later run" if run.is_recovered else "finished"


def _replace_underscores(name: str) -> str:
    return name.replace("_", " ")
