"""A short `poe fuzz` in every run, a longer one before a release, and proof that it can fail."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from tests.fuzz import running
from tests.fuzz.mutation import Mutator
from tests.fuzz.running import CaseError, run_cases
from tests.fuzz.targets import Target
from tests.support.hypothesis_profiles import load

load()

SHARE = 5 if settings().max_examples < 100 else 1
"""Divisor of the numbers of cases in the runs that also have few examples of each property."""


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("frames", 20_000),
        ("requests", 5000),
        ("layouts", 20_000),
        ("jmq-layouts", 20_000),
        ("stores", 100),
        ("jmq-stores", 100),
        ("planted-messages", 300),
        ("sent-messages", 300),
        ("planted-jmq", 300),
    ],
)
def test_random_damage_gives_values_or_documented_errors(name: str, cases: int) -> None:
    run_cases(name, 1, cases // SHARE)


def test_a_failing_case_is_named_and_fails_again_with_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(Target):
        def __init__(self, chance: random.Random) -> None:
            self._chance = chance

        def try_one(self) -> None:
            if self._chance.random() < 0.01:
                raise KeyError("frag")

    monkeypatch.setattr(running, "TARGETS", {"fragile": Fragile})
    told = set()
    for _ in range(2):
        with pytest.raises(CaseError, match=r"fragile, seed 3, case .*KeyError") as error:
            run_cases("fragile", 3, 10_000)
        told.add(str(error.value))
    assert len(told) == 1


def test_the_same_seed_gives_the_same_bytes() -> None:
    made = [[Mutator(random.Random(seed), [b"abc" * 9, b"x"], [b"!"]).next() for _ in range(3)] for seed in (5, 5, 6)]
    assert made[0] == made[1] != made[2]
