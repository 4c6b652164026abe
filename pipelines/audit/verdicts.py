"""Results of an audit: verdicts on the comparisons of two sides, also as JSON and as evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from commitlake.pipelines.audit.window_profiles import SHOWN, Profile, sort_by_key
from commitlake.schemas.tables.profile import FIGURES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from commitlake.pipelines.audit.audited_ranges import AuditSpan
    from commitlake.pipelines.audit.audited_versions import LakeState
    from commitlake.pipelines.audit.table_checks import TableFinding
    from commitlake.pipelines.audit.topic_tables_check import TopicComparison


@dataclass(frozen=True)
class AuditVerdict:
    """Result of comparing message counts from two places, with the differences.

    Attributes:
        expected: name of the side that is taken as correct.
        found: name of the other side.
        windows: number of windows of the first side.
        messages: number of its messages.
        differing: number of windows that differ.
        kinds: number of windows that are "missing", "unexpected" or "different".
        differences: the first windows of each kind.
        notes: further sentences, such as on bodies that cannot be read, or on messages that were left out.
        compared: False if there was nothing to compare; a note says why.
    """

    expected: str
    found: str
    windows: int = 0
    messages: int = 0
    differing: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    differences: Sequence[Mapping[str, Any]] = field(default=())
    notes: Sequence[str] = field(default=())
    compared: bool = True


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit: compared message counts, and damage found in tables.

    Attributes:
        moment: state of the lake that was compared.
        span: range of compared messages.
        verdicts: verdicts on the comparisons of two sides each.
        findings: damage found in single tables.
        notes: further notes, as sentences.
        topics: comparisons of the typed tables of topics.
    """

    moment: LakeState
    span: AuditSpan
    verdicts: Sequence[AuditVerdict]
    findings: Sequence[TableFinding]
    notes: Sequence[str] = ()
    topics: Sequence[TopicComparison] = ()


def compare_profiles(
    side_names: tuple[str, str],
    expected: Profile,
    found: Profile,
    columns: Sequence[str] = FIGURES,
    notes: Sequence[str] = (),
) -> AuditVerdict:
    """Compare the expected message counts with those that were found, and return a verdict with the differences.

    Args:
        side_names: names of the two sides.
        expected: the profile that is taken as correct.
        columns: columns to compare.
        notes: notes to add to the verdict.
    """
    totals = expected.count_totals()
    differences = expected.compare_with(found, columns)
    kinds: Counter[str] = Counter()
    for (_, kind), count in differences.counts.items():
        kinds[kind] += count
    ordered = sort_by_key(differences.rows)
    first = [row for kind in sorted(kinds) for row in [row for row in ordered if row["difference"] == kind][:SHOWN]]
    return AuditVerdict(*side_names, *totals, differences.window_count, dict(sorted(kinds.items())), first, notes)


def collect_audit_evidence(result: AuditResult) -> dict[str, Any]:
    """Return the data on an audit to be signed as evidence: the comparisons and their results."""
    moment = result.moment
    return {
        "messages_version": moment.version,
        "sequence": moment.commit.sequence,
        "erasure": moment.erasure,
        "span": str(result.span),
        "comparisons": [
            {
                "expected": verdict.expected,
                "found": verdict.found,
                "is_compared": verdict.compared,
                "windows": verdict.windows,
                "messages": verdict.messages,
                "differing": verdict.differing,
                "notes": list(verdict.notes),
            }
            for verdict in result.verdicts
        ],
        "findings": [{"table": one.table, "count": one.count, "what": one.what} for one in result.findings],
        "notes": list(result.notes),
        "topics": [
            {
                name: getattr(one, name)
                for name in (
                    "table",
                    "version",
                    "topic",
                    "followed",
                    "compared",
                    "messages",
                    "rows",
                    "misfits",
                    "erased",
                    "pending",
                    "differing",
                )
            }
            for one in result.topics
        ],
    }


def to_json_objects(verdicts: Sequence[DataclassInstance]) -> list[dict[str, Any]]:
    """Return verdicts or findings as JSON objects, in which values that JSON lacks are text."""
    rows: list[dict[str, Any]] = json.loads(json.dumps([asdict(verdict) for verdict in verdicts], default=str))
    return rows
