"""Tests of indexed reads of a copy in a folder, whose queues and indexes are older than its log."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from tests.support.indexed_stores import (
    OPTIONS,
    RARE,
    Clock,
    message,
    plan_of,
    read_by_plan,
    read_by_scan,
    without_seeks,
)
from tests.support.ship_targets import folder_target


def test_read_by_topic_or_key_finds_records_that_queues_and_indexes_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_seeks(monkeypatch)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    chance = random.Random(4)
    with MessageStore.open(tmp_path / "store", OPTIONS, clock=Clock()) as store:
        agent = ShipAgent(SourceStore(str(tmp_path / "store")), folder_target(tmp_path / "copy"), ShipSettings("b"))
        for number in range(300):
            store.put(message(number, chance))
        store.flush()
        agent.ship_round()
        for number in range(300, 600):
            store.put(message(number, chance))
        store.flush()
        agent.ship_round(includes_other_files=False)
    copy = tmp_path / "copy"
    cases: tuple[dict[str, object], ...] = (
        {"topics": RARE},
        {"topics": RARE, "keys": "order-580"},
        {"topics": "topic-1", "keys": "order-301"},
    )
    for options in cases:
        found = read_by_plan(copy, **options)
        assert found == read_by_scan(copy, **options) != []
    assert [str(way) for way in plan_of(copy, topics=RARE).stores[0].read_methods] != []
