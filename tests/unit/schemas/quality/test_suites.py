"""Tests of the suites as data: each expectation has a unique name, a description, a reason and a remedy."""

from __future__ import annotations

import pytest

from commitlake.schemas.quality.expectation import Expectation, Severity, Suite
from commitlake.schemas.quality.suites import FORMER_NAMES, SUITES

EVERY = [(suite, one) for suite in SUITES for one in suite.expectations]


def test_names_are_unique() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)
    assert len({(suite.name, one.name) for suite, one in EVERY}) == len(EVERY) >= 30


def test_former_names_have_present_names() -> None:
    names = {one.name for _, one in EVERY}
    assert set(FORMER_NAMES.values()) <= names
    assert not names & set(FORMER_NAMES)


@pytest.mark.parametrize(("suite", "one"), EVERY, ids=lambda value: value.name)
def test_an_expectation_has_a_description_a_reason_and_a_remedy(suite: Suite, one: Expectation) -> None:
    assert suite.about
    assert one.columns
    assert one.type.startswith("Expect")
    for text in (one.why, one.action):
        assert text
        assert text[0].isupper() or text[0] == "`"
        assert not text.endswith(".")  # it is put into sentences


def test_every_severity_is_used() -> None:
    assert {one.severity for _, one in EVERY} == set(Severity)
