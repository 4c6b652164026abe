"""A profile judged in stretches has the same verdict as in one piece."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from commitlake.pipelines.quality import profile_judge as judging_module
from commitlake.pipelines.quality.expectation_input import BrokerFacts, RunFacts, split_by_topics
from tests.support.judged_profiles import judge_profile
from tests.support.profiles import NOON, message, profile_of

LATER = NOON + datetime.timedelta(hours=8)
FACTS = RunFacts({"a": BrokerFacts(log_bytes=1000), "b": BrokerFacts(bad_ranges=1)}, written=70, now=LATER)
# Rows of two brokers and several topics: lost offsets, unknown kinds, a large record, an early time, and sound rows.
ROWS = [
    message(600 * n, broker=broker, topic=topic, queue_offset=n * (2 if topic == "t2" else 1), **changes)
    for broker in "ab"
    for topic, changes in (
        ("t1", {}),
        ("t2", {}),
        ("t3", {"kind": "odd"}),
        ("t4", {"size": 5 << 20}),
        ("t5", {"store_timestamp": datetime.datetime(1999, 1, 1, tzinfo=datetime.UTC)}),
        ("t6", {"unique_key": None}),
    )
    for n in range(6)
]


def test_a_stretch_has_whole_topics() -> None:
    profile = profile_of(ROWS)
    for rows in (1, 6, 7, 13, 30, 1000):
        found = list(split_by_topics(profile, rows))
        assert pa.concat_tables(found).equals(profile)
        topics = [
            set(zip(*(part.column(name).to_pylist() for name in ("broker", "topic")), strict=True)) for part in found
        ]
        assert sum(map(len, topics)) == len(set().union(*topics)) == 12
        assert all(part.num_rows <= max(rows, 6) for part in found)
    assert len(list(split_by_topics(profile, 6))) >= 12
    (nothing,) = split_by_topics(profile.slice(0, 0), 1)
    assert not nothing.num_rows


def test_parts_of_a_topic_in_different_places_are_put_together() -> None:
    profile = profile_of(ROWS)
    mixed = profile.take(pa.array([*range(0, profile.num_rows, 2), *range(1, profile.num_rows, 2)]))
    found = list(split_by_topics(mixed, 6))
    assert [len(set(part.column("topic").to_pylist())) for part in found] == [1] * 12


def test_the_judgement_equals_that_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of(ROWS)
    whole = judge_profile(profile, run_facts=FACTS)
    monkeypatch.setattr(judging_module, "MAX_PART_ROWS", 3)  # topics are judged before all are known, too
    assert list(judge_profile(profile, run_facts=FACTS, part_rows=20).judgements) == list(whole.judgements)
    assert len([found for found in whole.judgements if not found.success]) >= 6
