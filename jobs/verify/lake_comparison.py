"""Comparison of the archive with the stores, as findings of verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.audited_ranges import AuditSpan, to_log_ranges
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.compared_sides import AuditSides, open_audit_sides
from commitlake.pipelines.audit.store_ranges import find_ranges_in_stores
from commitlake.pipelines.audit.window_profiles import ProfileDifferences
from commitlake.pipelines.verify.findings import Finding
from commitlake.pipelines.verify.store_verification import StoreReport
from commitlake.schemas.formatted_counts import format_count

_CODES = {"missing": "lake_missing", "unexpected": "lake_extra", "different": "lake_different"}
_NOTHING = "lake_not_archived"


def add_lake_findings(
    runner: Runner,
    lake: Lake,
    store_path: str,
    broker: str | None,
    reports: Sequence[StoreReport],
    formats: Formats,
) -> None:
    """Add to each store's report the time windows in which the lake differs from the archived part of the store.

    Args:
        store_path: path of the stores, as for `find_stores`.
        broker: the store's name, if the path does not determine it.
        reports: reports of these stores.
        formats: the layout of the stores.

    Raises:
        LakeError: if nothing was ever archived into the lake.
        UnavailableError: if an archive run has committed but is not finished.
    """
    moment = read_lake_state(lake)
    ranges, _ = find_ranges_in_stores(store_path, broker, moment.commit.stores, formats)
    for report in reports:
        if report.broker not in ranges:
            report.findings.add(
                Finding(_NOTHING, lake.root, found="nothing of what this store still has", expected="all of it",
                        broker=report.broker)
            )  # fmt: skip
    if not ranges:
        return
    limit = max(report.findings.limit for report in reports)
    with open_audit_sides(
        runner, lake, AuditSpan().limit_to_dates_from(moment.expired.get("messages")), moment
    ) as sides:
        differing = _differing_windows(sides, store_path, broker, ranges, formats, limit)
    by_name = {report.broker: report for report in reports}
    for (name, difference), count in differing.counts.items():
        rows = [row for row in differing.rows if (row["broker"], row["difference"]) == (name, difference)]
        code = _CODES[difference]
        by_name[name].findings.add_many(code, count, [_window_finding(code, row) for row in rows])


def _differing_windows(
    sides: AuditSides,
    store_path: str,
    broker: str | None,
    store_ranges: Mapping[str, StoreRange],
    formats: Formats,
    limit: int,
) -> ProfileDifferences:
    """Return the time windows in which lake and store differ; repeat if the broker deleted segments meanwhile."""
    while True:
        with (
            sides.profile_stores(store_path, broker, store_ranges, formats) as store,
            sides.profile_messages(to_log_ranges(store_ranges)) as found,
        ):
            sides.correct_store_for_erasures(store, to_log_ranges(store_ranges))
            differing = store.compare_with(found, limit=limit)
        before, (store_ranges, _) = (
            store_ranges,
            find_ranges_in_stores(store_path, broker, sides.moment.commit.stores, formats),
        )
        if not differing.window_count or store_ranges == before or not store_ranges:
            return differing


def _window_finding(finding_code: str, row: Mapping[str, Any]) -> Finding:
    window = f"messages, {row['window_start'] or 'without a time'}"
    figures = [name for name in ("message", "byte") if f"found_{name}s" in row]
    sides = {
        side: ", ".join(format_count(row[f"{side}_{name}s"] or 0, name) for name in figures)
        for side in ("found", "expected")
    }
    finding = Finding(finding_code, window, queue=f"{row['topic']}/{row['queue_id']}", broker=row["broker"])
    return replace(finding, found=sides["found"], expected=sides["expected"])
