"""Journeys of keys are those of the plan of a lake, for any messages, window and number of archive runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import commitlake
from tests.support.hypothesis_profiles import load
from tests.support.journeyed_lakes import PLANS, SHAPES, WINDOWS, JourneyedLake, Sent, by_key, time_of

load()

EXAMPLES = max(5, settings().max_examples // 4)
ALL_SHAPES = [Sent(f"o{number} {shape}", "orders", shape, 7 * number) for number, shape in enumerate(SHAPES)]


@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(plan=PLANS, window=WINDOWS, runs=st.integers(1, 3))
@example(plan=ALL_SHAPES, window=(0, 500, 0), runs=1)
@example(plan=ALL_SHAPES, window=(60, 30, 60), runs=2)
def test_journeys_are_those_of_the_plan(plan: Sequence[Sent], window: tuple[int, int, int], runs: int) -> None:
    since, length, margin = window
    with tempfile.TemporaryDirectory() as folder:
        made = JourneyedLake(Path(folder), plan, runs)
        found = commitlake.open(made.root).journeys(
            since=time_of(since), until=time_of(since + length), margin=f"{margin}s"
        )
        assert by_key(found) == made.journeys(since, since + length, margin)
