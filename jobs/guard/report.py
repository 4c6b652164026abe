"""The report of guard: which segments will be deleted and when, what is at risk, and disk usage; also its rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import Facts, join_names, left_out_text, period_text
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.jobs.report.value_decoding import bytes_text, offset_text, time_text
from commitlake.pipelines.retention.deletion_forecast import SegmentVerdict, WatchedSegment, WatchedStore
from commitlake.pipelines.retention.deletion_rules import DeletionCause, Disk, Rules
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.finding_advice import NO_ADVICE, Advice, Places
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    Badge,
    Block,
    Cell,
    KeyFigures,
    Kind,
    Name,
    Paragraph,
    Report,
    Section,
    Table,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time

_HOUR_SECONDS = 3600
_ARCHIVE = "archive --store {store} {named} --lake {lake}"
_AT_RISK = Advice("archive now: {}", (_ARCHIVE,))
_LOST = Advice("archive now: {} records the loss in the table gaps", (_ARCHIVE,))
_REPLACED = Advice(
    "if it is a new store, archive it under another name: {}",
    ("archive --store {store} --broker {name} --lake {lake}",),
)
_DISK = Advice("free disk space, or shorten the broker's retention")
_MAX_EXAMPLES = 20
_CAUSES = {
    DeletionCause.TIME: "its age, at an hour of deleteWhen",
    DeletionCause.DISK: "its age, and a disk that is too full",
    DeletionCause.FORCED: "a disk that is so full that segments of any age are deleted",
    None: "",
}
COLUMNS = (
    Column("broker"), Column("segment"), Column("size", 1, is_number=True, text=size_text), Column("modified", 5),
    Column("archived", 2), Column("expires_at", 6), Column("deleted_at", 3), Column("cause", 4), Column("verdict"),
)  # fmt: skip
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


def guard_report(
    stores: Sequence[WatchedStore],
    lake: Lake,
    warning_period: datetime.timedelta,
    now: datetime.datetime,
    *,
    placeholders: Places,
    lake_exists: bool = True,
) -> Report:
    """Return the report of `guard` on all stores.

    Args:
        stores: Reports of the stores.
        warning_period: Time for which a segment must still exist.
        now: Time at which the stores were read.
        placeholders: Values for the advice: `store`, `lake` and `named`, the option that names a single store.
        lake_exists: Whether the lake exists.
    """
    groups = _risk_findings(stores, now, placeholders)
    sections = [
        Section("segments", "Segments", [_segment_figures(stores, warning_period)]),
        findings_section(groups, "No segment is lost or at risk, and no disk is too full."),
        Section("forecast", "Upcoming deletions", [_forecast_table(stores)]),
        Section("disks", "Disks", _disk_usage_blocks(stores, now)),
    ]
    if not lake_exists:
        text = f"There is no lake in {lake.root} yet: nothing is archived."
        sections.append(Section("runs", "Archive runs", [Paragraph(text)]))
    verdict = _guard_verdict(stores, groups, duration_text(warning_period))
    return Report(TITLE, verdict, _page_facts(stores, lake, warning_period, now), sections, "guard")


def _guard_verdict(stores: Sequence[WatchedStore], groups: Sequence[FindingGroup], within: str) -> Verdict:
    """Return the verdict on all stores; segments lost or at risk take priority over replaced stores."""
    lost = sum(store.lost is not None for store in stores)
    at_risk = sum(store.count_segments(SegmentVerdict.AT_RISK) > 0 for store in stores)
    replaced = sum(bool(store.replaced) for store in stores)
    unread = sum(bool(store.newer) for store in stores)
    found = []
    if lost:
        found.append(f"{format_count(lost, 'store has', 'stores have')} lost segments")
    if at_risk:
        found.append(f"{format_count(at_risk, 'store has', 'stores have')} segments at risk")
    if replaced:
        found.append(
            "1 store is not the one archived" if replaced == 1 else f"{replaced} stores are not those archived"
        )
    if unread:
        found.append(f"{format_count(unread, 'store has', 'stores have')} messages in folders that are not read")
    if found:
        exit_code = ExitCode.DAMAGE if lost or at_risk or unread else ExitCode.REFUSED
        return Verdict(Kind.CRITICAL, f"{', '.join(found)} within {within}", "Act now", exit_code)
    sentence = f"No segment is lost or at risk within {within}"
    if any(group.kind in {Kind.WARNING, Kind.CRITICAL} for group in groups):
        return Verdict(Kind.WARNING, sentence, "Watch")
    return Verdict(Kind.GOOD, sentence, "Safe")


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


def _segment_figures(stores: Sequence[WatchedStore], warning_period: datetime.timedelta) -> KeyFigures:
    count = {verdict: sum(store.count_segments(verdict) for store in stores) for verdict in SegmentVerdict}
    used = [watched for store in stores for watched in store.segments if watched.verdict is not SegmentVerdict.UNUSED]
    lost = [store.lost for store in stores if store.lost is not None]
    return KeyFigures(
        {
            "stores": f"{len(stores):,}",
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
            "cause": _CAUSES[cause],
        }


def _disk_usage_blocks(stores: Sequence[WatchedStore], now: datetime.datetime) -> Sequence[Block]:
    columns = (
        Column("broker"), Column("used", is_number=True, text=lambda percent: f"{percent:.1f} %"),
        Column("of", is_number=True, text=size_text),
        Column("written per hour", key="growth", is_number=True, text=size_text),
        Column("limits", is_notes=True, can_sort=False),
    )  # fmt: skip
    rows = []
    for store in stores[:MAX_ROWS]:
        for disk in store.disks:
            growth = disk.growth * 3600
            limits = [
                f"{percent} % {'exceeded' if moment <= now else 'in ' + duration_text(moment - now)}: {then}"
                if (moment := disk.time_when_usage_exceeds(percent, now)) is not None
                else f"{percent} %: {then}"
                for percent, then in _disk_limits(store.rules)
            ]
            rows.append(
                {
                    "broker": Name(store.broker),
                    "used": disk.used_percent,
                    "of": disk.entire,
                    "growth": growth if growth > 0 else Cell("not known"),
                    "limits": limits,
                }
            )
    notes = [
        Paragraph("Rules of ", Name(store.broker), f": {store.rules.source_note}", is_quiet=True)
        for store in stores[:MAX_ROWS]
        if store.rules.source_note
    ]
    if not rows:
        return [Paragraph("The stores are in an object store, so there are no disks."), *notes]
    rest = left_out_text(len(stores) - MAX_ROWS, "store")
    return [Table.of("Disks of the stores' logs and queues", columns, rows, rest), *notes]


def print_report(output_format: str, stores: Sequence[WatchedStore], now: datetime.datetime) -> None:
    """Print all segments to standard output: as a table, JSON (a row for each store) or CSV."""
    if output_format in {"json", "jsonl"}:
        write_rows(output_format, (_store_json_object(store, now) for store in stores), [])
    else:
        write_rows(output_format, _all_segment_rows(stores), COLUMNS)


def _all_segment_rows(stores: Sequence[WatchedStore]) -> Iterator[Row]:
    return ({"broker": store.broker, **row} for store in stores for row in _plain_segment_rows(store))


def _plain_segment_rows(store: WatchedStore) -> Iterator[Row]:
    for watched in store.segments:
        fate, segment = watched.fate, watched.fate.segment
        yield {
            "segment": segment.name,
            "size": segment.size,
            "modified": _time_text(segment.modified),
            "archived": str(segment.archived) if segment.begun else None,
            "expires_at": _time_text(fate.expires_at),
            "deleted_at": _time_text(fate.deleted_at),
            "cause": None if fate.cause is None else str(fate.cause),
            "verdict": str(watched.verdict),
        }


def _store_json_object(store: WatchedStore, now: datetime.datetime) -> dict[str, Any]:
    return {
        "broker": store.broker,
        "root": store.root,
        "rules": store.rules.source_note or "RocketMQ's",
        "growth_bytes_per_hour": round(store.growth * _HOUR_SECONDS),
        "disks": [
            {
                "used_bytes": disk.used,
                "entire_bytes": disk.entire,
                "used_percent": round(disk.used_percent, 2),
                "growth_bytes_per_hour": round(disk.growth * _HOUR_SECONDS),
                "limits": [
                    {
                        "percent": percent,
                        "then": then,
                        "exceeded_at": _time_text(disk.time_when_usage_exceeds(percent, now)),
                    }
                    for percent, then in _disk_limits(store.rules)
                ],
            }
            for disk in store.disks
        ],
        "lost": None if store.lost is None else {"start_offset": store.lost[0], "end_offset": store.lost[1]},
        "replaced": store.replaced or None,
        "not_read": list(store.newer),
        "segments": list(_plain_segment_rows(store)),
    }


def _disk_limits(rules: Rules) -> Iterator[tuple[int, str]]:
    """Yield each disk usage limit in percent, with what the broker does when it is exceeded."""
    yield rules.conf.disk_max_used_percent, "expired segments are deleted at any hour"
    if rules.conf.cleans_forcibly:
        yield rules.forced_deletion_percent, "segments are deleted at any age"
    yield rules.refusal_percent, "the broker refuses messages"


def _different_disks(stores: Sequence[WatchedStore]) -> Iterator[tuple[WatchedStore, Disk]]:
    """Yield each disk once, with the first store on it; stores with different disk limits count as different disks."""
    seen = set()
    for store in stores:
        for disk in store.disks:
            limits = tuple(_disk_limits(store.rules))
            if (disk.device, limits) not in seen:
                seen.add((disk.device, limits))
                yield store, disk


def _risk_findings(stores: Sequence[WatchedStore], now: datetime.datetime, placeholders: Places) -> list[FindingGroup]:
    """Return findings on the present and expected problems of stores and their disks.

    Args:
        now: time at which the stores were read.
        placeholders: values for the advice: `store`, `lake` and `named`, the option that names a single store.
    """
    of_stores = [group for store in stores for group in _store_findings(store, placeholders)]
    of_disks = [group for store, disk in _different_disks(stores) for group in _disk_findings(store, disk, now)]
    return of_stores + of_disks


def _store_findings(store: WatchedStore, placeholders: Places) -> Iterator[FindingGroup]:
    if store.lost is not None:
        start, end = store.lost
        yield FindingGroup(
            Kind.CRITICAL,
            store.broker,
            why=f"{bytes_text(end - start)} of the log were deleted before they were archived, from {start} to {end}",
            advice=_LOST.fill_placeholders(placeholders),
            examples=[Example(store.root, f"the log begins at physical offset {offset_text(end)}",
                              f"to begin at {offset_text(start)}, where the lake ends, or earlier")],
            word="Lost",
        )  # fmt: skip
    at_risk = [watched for watched in store.segments if watched.verdict is SegmentVerdict.AT_RISK]
    if at_risk:
        size = sum(watched.fate.segment.size for watched in at_risk)
        first = min(watched.fate.deleted_at for watched in at_risk if watched.fate.deleted_at is not None)
        yield FindingGroup(
            Kind.CRITICAL,
            store.broker,
            len(at_risk),
            f"{size_text(size)} will be deleted from {time_text(first)} on, and are not archived",
            _AT_RISK.fill_placeholders(placeholders),
            [_risk_example(watched, store) for watched in at_risk[:_MAX_EXAMPLES]],
            word="At risk",
            counted=format_count(len(at_risk), "segment"),
        )
    if store.replaced:
        yield FindingGroup(
            Kind.CRITICAL,
            store.broker,
            why=store.replaced.rstrip("."),
            advice=_REPLACED.fill_placeholders({**placeholders, "store": store.root}),
            word="Another store",
        )
    if store.newer:
        yield FindingGroup(Kind.CRITICAL, store.broker, why="; ".join(store.newer), word="Not read")


def _risk_example(watched_segment: WatchedSegment, store: WatchedStore) -> Example:
    segment, fate = watched_segment.fate.segment, watched_segment.fate
    gone = "" if fate.deleted_at is None else f"is deleted at {time_text(fate.deleted_at)}: {_CAUSES[fate.cause]}"
    return Example(
        f"{store.root}, {segment.name}, {bytes_text(segment.size)}",
        f"{gone}; in the lake: {segment.archived}",
        "to be archived before that",
        {"last written": time_text(segment.modified)},
    )


def _disk_findings(store: WatchedStore, disk: Disk, now: datetime.datetime) -> Iterator[FindingGroup]:
    for percent, then in _disk_limits(store.rules):
        moment = disk.time_when_usage_exceeds(percent, now)
        if moment is None:
            continue
        is_over = moment <= now
        when = "now" if is_over else f"in {duration_text(moment - now)}, at {time_text(moment)}"
        yield FindingGroup(
            Kind.WARNING if is_over else Kind.INFO,
            f"{store.broker}, over {percent} % {when}",
            why=f"{disk.used_percent:.1f} % of {size_text(disk.entire)} is used; above {percent} %, {then}",
            advice=_DISK.fill_placeholders() if is_over else NO_ADVICE,
            word="Disk",
        )


def _time_text(moment: datetime.datetime | None) -> str | None:
    if moment is None:
        return None
    return format_iso_time(moment)
