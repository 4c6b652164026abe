"""The page of guard: which segments will be deleted and when, what is at risk, and disk usage."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.guard.report import CAUSES, disk_limits, guard_verdict, risk_findings
from commitlake.jobs.report.findings import FindingGroup, findings_section
from commitlake.jobs.report.page_file import Facts, join_names, left_out_text, period_text
from commitlake.jobs.report.run_history import history_section, read_run_history
from commitlake.jobs.report.value_decoding import time_text
from commitlake.pipelines.retention.deletion_forecast import SegmentVerdict, WatchedStore
from commitlake.schemas.finding_advice import Places
from commitlake.schemas.report import (
    Badge,
    Block,
    Cell,
    Figures,
    Kind,
    Name,
    Paragraph,
    Report,
    Section,
    Table,
    Verdict,
)
from commitlake.schemas.report_columns import Column

TITLE = "Segments about to be deleted"
MAX_ROWS = 300
"""Largest number of rows in the tables of segments and disks."""
_KINDS = {
    SegmentVerdict.ARCHIVED: Kind.GOOD,
    SegmentVerdict.WAITS: Kind.INFO,
    SegmentVerdict.AT_RISK: Kind.CRITICAL,
    SegmentVerdict.UNUSED: Kind.INFO,
}
_WORDS = {
    SegmentVerdict.ARCHIVED: "archived",
    SegmentVerdict.WAITS: "not archived yet",
    SegmentVerdict.AT_RISK: "at risk",
    SegmentVerdict.UNUSED: "preallocated",
}


def make_guard_page(
    stores: Sequence[WatchedStore],
    lake: Lake,
    warning_period: datetime.timedelta,
    now: datetime.datetime,
    *,
    placeholders: Places,
    lake_exists: bool = True,
) -> Report:
    """Return the page of `guard` about all stores.

    Args:
        stores: Reports of the stores.
        warning_period: Time for which a segment must still exist.
        now: Time at which the stores were read.
        placeholders: Values for the advice: `store`, `lake` and `named`, the option that names a single store.
        lake_exists: Whether the lake exists.
    """
    verdict = guard_verdict(stores)
    groups = risk_findings(stores, now, placeholders)
    kind = Kind.CRITICAL if verdict.exit_code else _worst_kind_of_findings(groups)
    text = verdict.text[:1].upper() + verdict.text[1:]
    word = {Kind.CRITICAL: "Act now", Kind.WARNING: "Watch", Kind.INFO: "Safe", Kind.GOOD: "Safe"}[kind]
    sections = [
        Section("segments", "Segments", [_segment_figures(stores, warning_period)]),
        findings_section(groups, "No segment is lost or at risk, and no disk is too full."),
        Section("forecast", "Upcoming deletions", [_forecast_table(stores)]),
        Section("disks", "Disks", _disk_usage_blocks(stores, now)),
        history_section(read_run_history(lake)) if lake_exists else Section(
            "runs", "Archive runs", [Paragraph("There is no lake in this place yet: nothing is archived.")]
        ),
    ]  # fmt: skip
    sentence = Verdict(kind, f"{text} within {duration_text(warning_period)}", word)
    return Report(TITLE, sentence, _page_facts(stores, lake, warning_period, now), sections, "guard")


def _worst_kind_of_findings(finding_groups: Sequence[FindingGroup]) -> Kind:
    kinds = {group.kind for group in finding_groups}
    return Kind.WARNING if kinds & {Kind.WARNING, Kind.CRITICAL} else Kind.GOOD


def _page_facts(
    stores: Sequence[WatchedStore], lake: Lake, warning_period: datetime.timedelta, now: datetime.datetime
) -> Facts:
    gone = [watched.fate.deleted_at for store in stores for watched in store.segments
            if watched.fate.deleted_at is not None]  # fmt: skip
    written = [watched.fate.segment.modified for store in stores for watched in store.segments
               if watched.fate.segment.begun]  # fmt: skip
    return [
        ("Lake", lake.root),
        ("Broker" if len(stores) == 1 else "Brokers", join_names([store.broker for store in stores])),
        ("Folder" if len(stores) == 1 else "Folders", join_names([store.root for store in stores], 3)),
        ("Segments written", period_text(min(written), max(written)) if written else "none"),
        ("Checked time", duration_text(warning_period)),
        ("Next deletion", f"{time_text(min(gone))}, in {duration_text(min(gone) - now)}" if gone else "none expected"),
    ]


def _segment_figures(stores: Sequence[WatchedStore], warning_period: datetime.timedelta) -> Figures:
    count = {verdict: sum(store.count_segments(verdict) for store in stores) for verdict in SegmentVerdict}
    used = [watched for store in stores for watched in store.segments if watched.verdict is not SegmentVerdict.UNUSED]
    lost = [store.lost for store in stores if store.lost is not None]
    return Figures(
        {
            "segments": f"{len(used):,}",
            "archived": f"{count[SegmentVerdict.ARCHIVED]:,}",
            "not archived yet": f"{count[SegmentVerdict.WAITS]:,}",
            f"at risk within {duration_text(warning_period)}": f"{count[SegmentVerdict.AT_RISK]:,}",
            "lost": size_text(sum(end - start for start, end in lost)),
            "log": size_text(sum(watched.fate.segment.size for watched in used)),
        }
    )


def _forecast_table(stores: Sequence[WatchedStore]) -> Table:
    columns = (
        Column("segments"), Column("broker"), Column("verdict"), Column("number", is_number=True),
        Column("size", is_number=True, text=size_text), Column("last written (UTC)", key="written"),
        Column("deleted from (UTC)", key="deleted"), Column("because of", key="cause"),
    )  # fmt: skip
    rows = [row for store in _sort_worst_first(stores) for row in _segment_rows(store)]
    caption = "Consecutive segments with the same fate are one row. A broker deletes none of them earlier"
    return Table.of(caption, columns, rows[:MAX_ROWS], left_out_text(len(rows) - MAX_ROWS, "row"))


def _sort_worst_first(stores: Sequence[WatchedStore]) -> list[WatchedStore]:
    return sorted(stores, key=lambda store: (store.lost is None, not store.count_segments(SegmentVerdict.AT_RISK)))


def _segment_rows(store: WatchedStore) -> Iterator[Mapping[str, object]]:
    for (verdict, cause), group in groupby(store.segments, key=lambda watched: (watched.verdict, watched.fate.cause)):
        same = list(group)
        fates = [watched.fate for watched in same]
        first, last = fates[0].segment, fates[-1].segment
        gone = [fate.deleted_at for fate in fates if fate.deleted_at is not None]
        yield {
            "segments": first.name if len(same) == 1 else f"{first.name} to {last.name}",
            "broker": Name(store.broker),
            "verdict": Badge(_KINDS[verdict], _WORDS[verdict]),
            "number": len(same),
            "size": sum(fate.segment.size for fate in fates),
            "written": max(fate.segment.modified for fate in fates),
            "deleted": min(gone) if gone else "not foreseen",
            "cause": CAUSES[cause],
        }


def _disk_usage_blocks(stores: Sequence[WatchedStore], now: datetime.datetime) -> Sequence[Block]:
    columns = (
        Column("broker"), Column("used", is_number=True, text=lambda percent: f"{percent:.1f} %"),
        Column("of", is_number=True, text=size_text),
        Column("written per hour", key="growth", is_number=True, text=size_text),
        Column("limits"),
    )  # fmt: skip
    rows = []
    for store in stores[:MAX_ROWS]:
        for disk in store.disks:
            growth = disk.growth * 3600
            limits = "; ".join(
                f"{percent} % {'exceeded' if moment <= now else 'in ' + duration_text(moment - now)}: {then}"
                if (moment := disk.time_when_usage_exceeds(percent, now)) is not None
                else f"{percent} %: {then}"
                for percent, then in disk_limits(store.rules)
            )
            rows.append(
                {
                    "broker": Name(store.broker),
                    "used": disk.used_percent,
                    "of": disk.entire,
                    "growth": growth if growth > 0 else Cell("not known"),
                    "limits": limits,
                }
            )
    if not rows:
        return [Paragraph("The stores are in an object store, so there are no disks.")]
    rest = left_out_text(len(stores) - MAX_ROWS, "store")
    notes = [Paragraph(Name(store.broker), f": {store.rules.source_note}", is_quiet=True) for store in stores[:20]
            if store.rules.source_note]  # fmt: skip
    return [Table.of("Disks of the stores' logs and queues", columns, rows, rest), *notes]
