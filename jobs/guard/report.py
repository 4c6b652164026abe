"""The output of guard: a row for each segment, and findings and sentences on stores and their disks."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.jobs.report.text_blocks import block_lines
from commitlake.jobs.report.value_decoding import bytes_text, offset_text, time_text
from commitlake.pipelines.retention.deletion_forecast import SegmentVerdict, WatchedSegment, WatchedStore
from commitlake.pipelines.retention.deletion_rules import Cause, Disk, Rules
from commitlake.schemas.count_texts import format_count
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.finding_advice import NO_ADVICE, Advice, Places
from commitlake.schemas.report import Kind
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
CAUSES = {
    Cause.TIME: "its age, at an hour of deleteWhen",
    Cause.DISK: "its age, and a disk that is too full",
    Cause.FORCED: "a disk that is so full that segments of any age are deleted",
    None: "",
}
COLUMNS = (
    Column("broker"), Column("segment"), Column("size", 1, is_number=True, text=size_text), Column("modified", 5),
    Column("archived", 2), Column("expires_at", 6), Column("deleted_at", 3), Column("cause", 4), Column("verdict"),
)  # fmt: skip


def print_report(output_format: str, stores: Sequence[WatchedStore], now: datetime.datetime) -> None:
    """Print all segments to standard output: as a table, JSON (a row for each store) or CSV."""
    if output_format in {"json", "jsonl"}:
        write_rows(output_format, (_store_json_object(store, now) for store in stores), [])
    else:
        write_rows(output_format, _all_segment_rows(stores), COLUMNS)


def _all_segment_rows(stores: Sequence[WatchedStore]) -> Iterator[Row]:
    return ({"broker": store.broker, **row} for store in stores for row in _segment_rows(store))


def _segment_rows(store: WatchedStore) -> Iterator[Row]:
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
                    for percent, then in disk_limits(store.rules)
                ],
            }
            for disk in store.disks
        ],
        "lost": None if store.lost is None else {"start_offset": store.lost[0], "end_offset": store.lost[1]},
        "replaced": store.replaced or None,
        "not_read": list(store.newer),
        "segments": list(_segment_rows(store)),
    }


def disk_limits(rules: Rules) -> Iterator[tuple[int, str]]:
    """Yield each disk usage limit in percent, with what the broker does when it is exceeded."""
    yield rules.conf.disk_max_used_percent, "expired segments are deleted at any hour"
    if rules.conf.cleans_forcibly:
        yield rules.forced_deletion_percent, "segments are deleted at any age"
    yield rules.refusal_percent, "the broker refuses messages"


def rule_lines(stores: Sequence[WatchedStore]) -> Iterator[str]:
    """Yield a sentence for each store whose deletion rules differ from RocketMQ's defaults."""
    return (f"rules of {store.broker}: {store.rules.source_note}" for store in stores if store.rules.source_note)


def disk_lines(stores: Sequence[WatchedStore]) -> Iterator[str]:
    """Yield a sentence about each disk's usage."""
    return (f"disk of {store.broker}: {_disk_text(disk)}" for store, disk in _different_disks(stores))


def _different_disks(stores: Sequence[WatchedStore]) -> Iterator[tuple[WatchedStore, Disk]]:
    """Yield each disk once, with the first store on it; stores with different disk limits count as different disks."""
    seen = set()
    for store in stores:
        for disk in store.disks:
            limits = tuple(disk_limits(store.rules))
            if (disk.device, limits) not in seen:
                seen.add((disk.device, limits))
                yield store, disk


def _disk_text(disk: Disk) -> str:
    used = f"{disk.used_percent:.1f} % of {size_text(disk.entire)} used"
    if disk.growth <= 0:
        return f"{used}; its growth is unknown"
    return f"{used}, {size_text(disk.growth * _HOUR_SECONDS)} are written per hour"


def risk_findings(stores: Sequence[WatchedStore], now: datetime.datetime, placeholders: Places) -> list[FindingGroup]:
    """Return findings on the present and expected problems of stores and their disks.

    Args:
        now: time at which the stores were read.
        placeholders: values for the advice: `store`, `lake` and `named`, the option that names a single store.
    """
    of_stores = [group for store in stores for group in _store_findings(store, placeholders)]
    of_disks = [group for store, disk in _different_disks(stores) for group in _disk_findings(store, disk, now)]
    return of_stores + of_disks


def risk_lines(groups: Sequence[FindingGroup], *, only_critical: bool) -> Iterator[str]:
    """Yield findings as lines of text, without their examples, because the table of segments already shows them."""
    shown = [replace(group, examples=()) for group in groups if group.kind is Kind.CRITICAL or not only_critical]
    return block_lines(findings_section(shown, "").blocks if shown else ())


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
    gone = "" if fate.deleted_at is None else f"is deleted at {time_text(fate.deleted_at)}: {CAUSES[fate.cause]}"
    return Example(
        f"{store.root}, {segment.name}, {bytes_text(segment.size)}",
        f"{gone}; in the lake: {segment.archived}",
        "to be archived before that",
        {"last written": time_text(segment.modified)},
    )


def _disk_findings(store: WatchedStore, disk: Disk, now: datetime.datetime) -> Iterator[FindingGroup]:
    for percent, then in disk_limits(store.rules):
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


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The verdict of a guard run: the end of its summary, and the exit code."""

    text: str
    exit_code: ExitCode


def guard_verdict(stores: Sequence[WatchedStore]) -> GuardVerdict:
    """Return the verdict on all stores; lost or endangered segments take priority over stores that were replaced."""
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
    if not found:
        return GuardVerdict("no segment is lost or at risk", ExitCode.OK)
    return GuardVerdict(", ".join(found), ExitCode.DAMAGE if lost or at_risk or unread else ExitCode.REFUSED)


def summary(stores: Sequence[WatchedStore], warning_period: datetime.timedelta) -> str:
    """Return the last line of the report: the numbers of segments in each state, and the verdict on all stores."""
    count = {verdict: sum(store.count_segments(verdict) for store in stores) for verdict in SegmentVerdict}
    segments = sum(count.values()) - count[SegmentVerdict.UNUSED]
    return (
        f"{format_count(segments, 'segment')} of {format_count(len(stores), 'store')}: "
        f"{count[SegmentVerdict.ARCHIVED]} "
        f"archived, {count[SegmentVerdict.WAITS]} not yet, {count[SegmentVerdict.AT_RISK]} at risk within "
        f"{duration_text(warning_period)}; {guard_verdict(stores).text}"
    )


def _time_text(moment: datetime.datetime | None) -> str | None:
    if moment is None:
        return None
    return format_iso_time(moment)
