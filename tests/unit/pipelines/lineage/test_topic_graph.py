"""Links between topics, counted by DataFusion, equal those of a plain loop."""

from __future__ import annotations

import datetime
import random
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from commitlake.pipelines.lineage.topic_graph import build_topic_graph, complete_time_range
from commitlake.schemas.errors import UsageError
from tests.support.lineage_lakes import at, make_lake, record

HOUR = datetime.timedelta(hours=1)


def test_records_that_follow_each_other_by_key_are_links(tmp_path: Path) -> None:
    rng = random.Random(7)
    records = []
    by_key: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for number in range(300):
        topic = rng.choice(["orders", "payments", "it's \\odd"])
        keys = [f"k{key}" for key in rng.sample(range(20), rng.choice([0, 1, 2]))]
        seconds = float(rng.randrange(100))
        records.append(record(number, seconds, topic, keys=keys or None, unique_key=f"U{number}"))
        for key in keys:
            by_key[key].append((seconds, number, topic))
    records.append(record(1000, 50, "%RETRY%g", keys=["k1"], unique_key="R"))  # a broker's copy does not count
    expected: Counter[tuple[str, str]] = Counter()
    for found in by_key.values():
        found.sort()
        for (_, _, source), (_, _, target) in pairwise(found):
            if source != target:
                expected[source, target] += 1
    graph = build_topic_graph(make_lake(tmp_path, records), at(0), at(1000))
    assert {(link.source, link.target): link.passes for link in graph.links} == expected
    assert [link.passes for link in graph.links] == sorted(expected.values(), reverse=True)
    assert sum(node.records for node in graph.topics) == sum(map(len, by_key.values()))
    some = build_topic_graph(make_lake(tmp_path / "again", records), at(0), at(1000), limit=2)
    assert (len(some.links), some.not_shown) == (2, len(expected) - 2)


def test_links_have_delays_and_long_delays_are_not_links(tmp_path: Path) -> None:
    records = [
        record(1, 0, "a", keys=["k", "l"]), record(2, 10, "b", keys=["k"]), record(3, 30, "b", keys=["l"]),
        record(4, 30 + 8 * 86_400, "c", keys=["l"]),
    ]  # fmt: skip
    graph = build_topic_graph(make_lake(tmp_path, records), at(0), at(10**6))
    (link,) = graph.links
    assert (link.source, link.target, link.passes, link.keys) == ("a", "b", 2, 2)
    assert datetime.timedelta(seconds=10) <= link.median <= link.p95 <= datetime.timedelta(seconds=30)


def test_a_time_without_keys_has_no_links_and_an_empty_time_is_refused(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, [record(1, 0, "a", keys=None)])
    graph = build_topic_graph(lake, at(0), at(10))
    assert (graph.topics, graph.links, graph.not_shown) == ([], [], 0)
    with pytest.raises(UsageError, match="expected a start before the end"):
        build_topic_graph(lake, at(10), at(10))


def test_the_default_day_ends_with_the_newest_message(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, [record(1, 0, "orders"), record(2, 60, "orders")])
    start, end = complete_time_range(lake, None, None)
    assert end == at(60) + datetime.timedelta(milliseconds=1)
    assert end - start == datetime.timedelta(days=1)
    assert complete_time_range(lake, at(1), at(2)) == (at(1), at(2))
