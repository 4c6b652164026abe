"""Runs the suites on a profile, part by part, in the driver's memory."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace

import pandas as pd
import pyarrow as pa

from commitlake.pipelines.quality.expectation_input import MAX_PART_ROWS, RunFacts, join_judgements
from commitlake.pipelines.quality.frame_judge import FrameChecker
from commitlake.pipelines.quality.pandas_frames import (
    KEYS,
    build_broker_frame,
    build_topic_frame,
    build_window_frame,
    sum_topics_by_broker,
)
from commitlake.pipelines.quality.report import Judgement, QualityReport
from commitlake.schemas.quality.expectation import Grain, Suite
from commitlake.schemas.quality.suites import SUITES

NOT_OF_MASKED = frozenset({"bodies_fit_into_their_records", "records_are_larger_than_their_bodies"})
"""Expectations that do not hold where bodies are masked: a mask may make them larger."""


class ProfileJudging:
    """Checker of a run's message counts that holds only one part of them in memory at a time.

    For each part it keeps the results, sums for each broker, and sums of topics until there are as many as rows in a
    part.

    Args:
        suites: suites to run.
        facts: further facts of the run.
    """

    def __init__(self, suites: Iterable[Suite] = SUITES, facts: RunFacts | None = None) -> None:
        self._facts, self._suites = facts or RunFacts(), list(suites)
        if self._facts.is_masked:
            self._suites = [_suite_for_masked_messages(suite) for suite in self._suites]
        self._found: dict[str, list[list[Judgement]]] = {suite.name: [] for suite in self._suites}
        self._topics: list[pd.DataFrame] = []
        self._brokers: list[pd.DataFrame] = []
        self._frames = FrameChecker()

    def add_profile_part(self, profile_part: pa.Table) -> None:
        """Check the counts of some topics, and keep the results for `make_report`.

        Args:
            profile_part: a merged table of `PROFILE` with all windows of each of its topics.

        Raises:
            ProfileError: if the table is not a profile.
        """
        self._free_frame_copies()
        windows = build_window_frame(profile_part, self._facts)
        self._judge_frame(Grain.WINDOW, windows)
        self._topics.append(build_topic_frame(windows))
        del windows
        if sum(map(len, self._topics)) >= MAX_PART_ROWS:
            self._judge_topics()

    def _free_frame_copies(self) -> None:
        """Free great_expectations' copies of the previous part, which reference cycles keep alive."""
        if self._topics or self._brokers:
            self._frames = FrameChecker()  # the last one also judges the sums
            gc.collect()

    def make_report(self) -> QualityReport:
        """Return the results of the expectations for all parts that were added, at least one."""
        if self._topics:
            self._judge_topics()
        self._judge_frame(Grain.BROKER, build_broker_frame(pd.concat(self._brokers, ignore_index=True), self._facts))
        judgements = [
            join_judgements(parts) for suite in self._suites for parts in zip(*self._found[suite.name], strict=True)
        ]
        return QualityReport(judgements, self._facts.now)

    def _judge_topics(self) -> None:
        topics = pd.concat(self._topics, ignore_index=True) if len(self._topics) > 1 else self._topics[0]
        self._topics = []
        self._judge_frame(Grain.TOPIC, topics)
        self._brokers.append(sum_topics_by_broker(topics))

    def _judge_frame(self, grain: Grain, frame: pd.DataFrame) -> None:
        suites = [suite for suite in self._suites if suite.grain is grain]
        for suite, judgements in zip(suites, self._frames.judge_frame(suites, frame, KEYS[grain]), strict=True):
            self._found[suite.name].append(judgements)


def _suite_for_masked_messages(suite: Suite) -> Suite:
    """Return a suite without expectations that masking makes fail, such as those on body CRCs."""
    kept = tuple(expected for expected in suite.expectations if expected.name not in NOT_OF_MASKED)
    return replace(suite, expectations=kept)
