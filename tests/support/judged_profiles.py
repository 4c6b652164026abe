"""Judgement of a whole profile in this process."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from commitlake.pipelines.quality.expectation_input import RunFacts, split_by_topics
from commitlake.pipelines.quality.profile_judge import ProfileJudging
from commitlake.pipelines.quality.report import QualityReport
from commitlake.schemas.quality.expectation import Suite
from commitlake.schemas.quality.suites import SUITES


def judge_profile(
    profile: pa.Table, suites: Iterable[Suite] = SUITES, run_facts: RunFacts | None = None, part_rows: int | None = None
) -> QualityReport:
    """Check a merged profile by expectation suites, in parts of so many rows, and return the results."""
    judging = ProfileJudging(suites, run_facts)
    for part in split_by_topics(profile) if part_rows is None else split_by_topics(profile, part_rows):
        judging.add_profile_part(part)
    return judging.make_report()
