"""The time since which a group has not moved."""

from __future__ import annotations

import datetime
import json
import os

import pytest

from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.answer import lag_of_lake
from commitlake.pipelines.lag.measure import Choice
from commitlake.pipelines.lag.standing import standing_since
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

MIDNIGHT = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
HOUR = datetime.timedelta(hours=1)
OFFSETS = {1: 1, 2: 3, 3: 3, 4: 3}
"""By the hour of a snapshot; a message is stored each hour from 0 on."""


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("history"))
    growing.write(
        new_message(hour, topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + hour * 3_600_000)
        for hour in range(5)
    )
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    for hour, offset in OFFSETS.items():
        path.write_text(json.dumps({"offsetTable": {"orders@it's": {0: offset}}}))
        os.utime(path, (MIDNIGHT_MS // 1000 + hour * 3600,) * 2)
        assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def test_a_group_is_standing_since_its_offset_or_the_first_waiting_message(growing: GrowingLake) -> None:
    found = []
    for hour in OFFSETS:
        (row,) = lag_of_lake(growing.lake, MIDNIGHT + hour * HOUR, Choice()).rows
        found.append(standing_since(growing.lake, row))
    # At 1 the message of 1 waits; at 2 none does; from 3 on it is the message of 3.
    assert found == [MIDNIGHT + HOUR, None, MIDNIGHT + 3 * HOUR, MIDNIGHT + 3 * HOUR]
