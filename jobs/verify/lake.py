"""The archive against the stores: what audit compares, told as findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Row, SparkSession

from commitlake.connectors.formats.engine.plan import StoreRange
from commitlake.connectors.formats.registry import FormatChoice
from commitlake.connectors.lake.paths import LakePaths
from commitlake.pipelines.audit.moment import read_moment
from commitlake.pipelines.audit.sides import Sides, Span, ranges_in_store
from commitlake.pipelines.transforms.profile import compare_profiles
from commitlake.pipelines.verify.doctor import StoreReport
from commitlake.pipelines.verify.findings import Finding

_CODES = {"missing": "lake_missing", "unexpected": "lake_extra", "different": "lake_different"}
_NOTHING = "lake_not_archived"


def add_lake_findings(
    spark: SparkSession,
    lake: LakePaths,
    path: str,
    broker: str | None,
    reports: Sequence[StoreReport],
    layout: FormatChoice,
) -> None:
    """Add, to each store's report, the windows in which the lake has not what the store has of what is archived.

    Args:
        spark: the session.
        lake: where the tables lie.
        path: the stores, as for `find_stores`.
        broker: the store's name, where the path does not tell it.
        reports: of these stores.
        layout: which of the path's stores are meant.

    Raises:
        LakeError: if nothing was ever archived into the lake.
        JobError: if an archive run has committed, and is not finished.
    """
    moment = read_moment(lake)
    sides = Sides(spark, lake, lake.bodies, Span().since(moment.expired.get("messages")), moment)
    ranges, _ = ranges_in_store(path, broker, moment.commit.stores, layout)
    for report in reports:
        if report.broker not in ranges:
            report.findings.add(
                Finding(_NOTHING, lake.root, found="nothing of what this store still has", expected="all of it",
                        broker=report.broker)
            )  # fmt: skip
    if not ranges:
        return
    differing = _differing(sides, path, broker, ranges, layout)
    by_name = {report.broker: report for report in reports}
    for row in differing.groupBy("broker", "difference").count().collect():
        findings, code = by_name[row["broker"]].findings, _CODES[row["difference"]]
        same = (differing["broker"] == row["broker"]) & (differing["difference"] == row["difference"])
        first = [_finding(code, each) for each in differing.where(same).limit(findings.limit).collect()]
        findings.add_many(code, row["count"], first)
    differing.unpersist()


def _differing(
    sides: Sides, path: str, broker: str | None, ranges: Mapping[str, StoreRange], layout: FormatChoice
) -> DataFrame:
    """Windows that differ, cached; a broker that deletes its oldest segments meanwhile is no difference."""
    while True:
        found = sides.messages(sides.stretches(ranges))
        differing = compare_profiles(sides.store(path, broker, ranges, layout), found).cache()
        before, (ranges, _) = ranges, ranges_in_store(path, broker, sides.moment.commit.stores, layout)
        if differing.isEmpty() or ranges == before or not ranges:
            return differing
        differing.unpersist()


def _finding(code: str, row: Row) -> Finding:
    window = f"messages, {row['window_start'] or 'without a time'}"
    figures = [name for name in ("messages", "bytes") if f"found_{name}" in row]
    sides = {
        side: ", ".join(f"{row[f'{side}_{name}'] or 0} {name}" for name in figures) for side in ("found", "expected")
    }
    finding = Finding(code, window, queue=f"{row['topic']}/{row['queue_id']}", broker=row["broker"])
    return replace(finding, found=sides["found"], expected=sides["expected"])
