"""A separate process gives the same judgement, and the same errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from commitlake.pipelines.quality.expectation_input import RunFacts, split_by_topics
from commitlake.pipelines.quality.frame_judge import FrameChecker
from commitlake.pipelines.quality.judge_subprocess import JudgeSubprocess
from commitlake.pipelines.quality.pandas_frames import KEYS, build_window_frame
from commitlake.pipelines.quality.profile_columns import QualityError
from commitlake.schemas.quality.expectation import Grain
from commitlake.schemas.quality.suites import SUITES
from tests.support.judged_profiles import judge_profile
from tests.support.profiles import NOON, messages, profile_of

FACTS = RunFacts(now=NOON)


@pytest.fixture(scope="module")
def process() -> Iterator[JudgeSubprocess]:
    with JudgeSubprocess() as found:
        yield found


def test_the_judgement_is_the_same(process: JudgeSubprocess) -> None:
    profile = profile_of([each for number, each in enumerate(messages(range(60))) if number != 7])
    here = judge_profile(profile, run_facts=FACTS)
    for _ in range(2):  # a run that is tried again judges again
        judging = process.begin_judging(FACTS)
        for stretch in split_by_topics(profile, 3):
            judging.add_profile_part(stretch)
        there = judging.make_report()
        assert there.damage_judgements
        assert there == here


def test_an_error_is_the_same(process: JudgeSubprocess) -> None:
    suite = next(suite for suite in SUITES if suite.grain is Grain.WINDOW)
    unknown = dataclasses.replace(suite.expectations[0], type="ExpectNothing")
    suites = [dataclasses.replace(suite, expectations=(unknown,))]
    windows = build_window_frame(profile_of(messages(range(10))), FACTS)
    with pytest.raises(QualityError, match="no expectation ExpectNothing"):
        process.start().call(FrameChecker().judge_frame, suites, windows, KEYS[Grain.WINDOW])


def test_the_process_starts_when_first_needed() -> None:
    with JudgeSubprocess() as process:
        assert process._process is None
        assert process.start() is process.start()
        assert process._process is not None
