"""The judging process remembers an expectation's configuration, which changes no result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from commitlake.pipelines.quality.facts import RunFacts
from commitlake.pipelines.quality.judge import judge
from commitlake.pipelines.quality.judge_process import JudgeProcess
from commitlake.pipelines.quality.last_configuration import remember_configuration
from commitlake.pipelines.quality.loading import load
from tests.support.profiles import NOON, messages, profile_of


@pytest.fixture
def expectations() -> Iterator[Any]:
    """The package of expectations, which remember their configuration."""
    found = load().expectations
    model = found.expectation.Expectation
    before = model.configuration
    remember_configuration()
    yield found
    model.configuration = before


def test_a_configuration_is_made_once_for_the_expectation_in_use(expectations: Any) -> None:
    first, second = (expectations.ExpectColumnMaxToBeBetween(column=name, max_value=1) for name in "ab")
    once = first.configuration
    assert first.configuration is once
    assert second.configuration.kwargs["column"] == "b"
    assert first.configuration is not once
    assert first.configuration == once


def test_it_is_changed_once(expectations: Any) -> None:
    model = expectations.expectation.Expectation
    changed = model.configuration
    remember_configuration()
    assert model.configuration is changed


def test_the_results_are_the_same(request: pytest.FixtureRequest) -> None:
    profile = profile_of([each for number, each in enumerate(messages(range(60))) if number != 7])
    before = judge(profile, facts=RunFacts(now=NOON))
    request.getfixturevalue("expectations")
    assert judge(profile, facts=RunFacts(now=NOON)) == before
    assert before.damage


def test_the_judging_process_remembers() -> None:
    where = "__import__('great_expectations').expectations.expectation.Expectation.configuration.fget.__module__"
    with JudgeProcess() as process:
        assert process.start().call(eval, where) == remember_configuration.__module__
