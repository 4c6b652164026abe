"""Journeys of keys are those of the plan of a lake, for any messages, window and number of archive runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import commitlake
from commitlake.pipelines.journeys import key_records
from tests.support.hypothesis_profiles import load
from tests.support.journeyed_lakes import PLANS, SHAPES, WINDOWS, JourneyedLake, Sent, by_key, time_of

load()

EXAMPLES = max(3, settings().max_examples // 4 - 2)
ALL_SHAPES = [Sent(f"o{number} {shape}", "orders", shape, 7 * number) for number, shape in enumerate(SHAPES)]


@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(plan=PLANS, window=WINDOWS, runs=st.integers(1, 3), are_near=st.booleans())
@example(plan=ALL_SHAPES, window=(0, 500, 0), runs=1, are_near=False)
@example(plan=ALL_SHAPES, window=(60, 30, 60), runs=2, are_near=True)
def test_journeys_are_those_of_the_plan(
    plan: Sequence[Sent], window: tuple[int, int, int], runs: int, are_near: bool
) -> None:
    """Also if records of few keys, and few steps, fit into memory."""
    since, length, margin = window
    with tempfile.TemporaryDirectory() as folder:
        made = JourneyedLake(Path(folder), plan, runs)
        question: dict[str, Any] = {"since": time_of(since), "until": time_of(since + length), "margin": f"{margin}s"}
        lake = commitlake.open(made.root)
        found = lake.journeys(**question)
        assert by_key(found) == made.journeys(since, since + length, margin)
        flow = lake.topic_flow(**question)
        limits = key_records.RowLimits(slice_rows=3, chunk_rows=2, part_steps=2, window_rows=1_000 if are_near else 0)
        with patch.object(key_records, "LIMITS", limits):
            assert lake.journeys(**question).equals(found)
            assert lake.topic_flow(**question).equals(flow)
