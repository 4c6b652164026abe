"""A process of its own gives the same judgement, and the same errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from commitlake.pipelines.quality.errors import JudgeError
from commitlake.pipelines.quality.facts import RunFacts
from commitlake.pipelines.quality.judge import Judging, judge
from commitlake.pipelines.quality.judge_process import JudgeProcess
from commitlake.pipelines.quality.stretches import stretches_of
from commitlake.schemas.quality.expectation import Grain
from commitlake.schemas.quality.suites import SUITES
from tests.support.profiles import NOON, messages, profile_of

FACTS = RunFacts(now=NOON)


@pytest.fixture(scope="module")
def process() -> Iterator[JudgeProcess]:
    with JudgeProcess() as found:
        yield found


def test_the_judgement_is_the_same(process: JudgeProcess) -> None:
    profile = profile_of([each for number, each in enumerate(messages(range(60))) if number != 7])
    here = judge(profile, facts=FACTS)
    judging = Judging(SUITES, FACTS, judge_frame=process.judge_frame)
    for stretch in stretches_of(profile):
        judging.add(stretch)
    there = judging.report()
    assert not there.passed
    assert there.judgements == here.judgements


def test_an_error_is_the_same(process: JudgeProcess) -> None:
    suite = next(suite for suite in SUITES if suite.grain is Grain.WINDOW)
    expectation = dataclasses.replace(suite.expectations[0], type="ExpectNothing")
    judging = Judging([dataclasses.replace(suite, expectations=(expectation,))], judge_frame=process.judge_frame)
    (stretch,) = stretches_of(profile_of(messages(range(10))))
    with pytest.raises(JudgeError, match="no ExpectNothing"):
        judging.add(stretch)
