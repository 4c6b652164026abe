"""Stores used by the measurements: their bodies are realistic, and their segments end where they should."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK
from tests.benchmarks.naive import parse_segment
from tests.support.corpus import json_bodies, make_corpora, shop_batches

FRAME = 256 << 10


@pytest.mark.parametrize("body_bytes", [200, 1024, 4096])
def test_bodies_are_distinct_json_of_about_the_size_wanted(body_bytes: int) -> None:
    bodies = json_bodies(body_bytes, count=300)
    assert len(set(bodies)) == 300
    assert all("order" in json.loads(body) for body in bodies)
    assert all(0.85 * body_bytes <= len(body) <= 1.1 * body_bytes for body in bodies)


@pytest.mark.parametrize("body_bytes", [200, 1024, 4096])
def test_bodies_compress_like_business_data(body_bytes: int) -> None:
    frame = b"".join(json_bodies(body_bytes, count=FRAME // body_bytes))
    assert 2.5 <= len(frame) / len(pa.Codec("zstd", 1).compress(frame)) <= 4


def test_bodies_are_the_same_for_the_same_seed() -> None:
    assert json_bodies(1024, count=5) == json_bodies(1024, count=5) != json_bodies(1024, count=5, seed=2)


def test_each_batch_is_for_one_queue_with_a_clients_properties() -> None:
    first, second = islice(shop_batches([b"body"]), 2)
    assert len({(message.topic, message.queue_id) for message in first}) == 1
    assert (first[0].topic, first[0].queue_id) != (second[0].topic, second[0].queue_id)
    assert [key for key, _ in first[0].properties] == ["KEYS", "UNIQ_KEY", "TAGS", "WAIT", "city", "tier"]


def test_larger_stores_begin_with_the_segments_of_smaller_ones(tmp_path: Path) -> None:
    small, large = make_corpora(tmp_path, 0.002, 1024, [1, 3])
    (only,) = (small.store / "commitlog").iterdir()
    segments = sorted((large.store / "commitlog").iterdir())
    assert len(segments) == 3
    assert segments[0].samefile(only)
    assert large.messages == pytest.approx(3 * small.messages, rel=0.1)
    assert sum(len(parse_segment(segment.read_bytes())) for segment in segments) == large.messages
    # Full to the last: what is left is filler.
    last_bytes = only.read_bytes()[-(80 << 10) :]
    at = last_bytes.rindex(Magic.BLANK.to_bytes(4, "big", signed=True)) - 4
    assert BLANK.unpack(last_bytes, at)[0] == len(last_bytes) - at


def test_existing_stores_are_not_made_again(tmp_path: Path) -> None:
    (made,) = make_corpora(tmp_path, 0.002, 1024, [1])
    (segment,) = (made.store / "commitlog").iterdir()
    before = segment.stat().st_mtime_ns
    assert make_corpora(tmp_path, 0.002, 1024, [1]) == [made]
    assert segment.stat().st_mtime_ns == before
