"""What stops a run says where it is, and what to do meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from connectors.archive.judging import CriticalQualityError, judge_run
from connectors.archive.manifest import ManifestRow
from connectors.archive.work import find_work
from connectors.lake.archive_log import CommittedRange
from connectors.lake.data_files import DataFile
from connectors.lake.paths import LakePaths
from connectors.quality.wire import serialize_profile
from tests.logs import messages as sent
from tests.logs import open_segment, write_store
from tests.unit.connectors.quality.making import messages, profile_of

LOG = 1 << 20


@pytest.mark.parametrize("brokers", [["a"], ["a", "b"]])
def test_a_broker_in_trouble_is_named_and_the_others_can_be_archived(tmp_path: Path, brokers: list[str]) -> None:
    lake = LakePaths(str(tmp_path / "lake"))
    store = write_store(tmp_path / "store", [(0, open_segment(sent(2), 1 << 16))])
    work = find_work(str(store), "a", lake)
    work = replace(work, commit=replace(work.commit, ranges={name: CommittedRange(0, LOG) for name in brokers}))
    rows = messages([0, 1, 1000]) + [row for name in brokers[1:] for row in messages(range(3), broker=name)]
    file = DataFile("x.parquet", None, 1, len(rows), "{}")
    manifest = [ManifestRow.of_file(file, "messages"), ManifestRow(profile=serialize_profile(profile_of(rows)))]
    (tmp_path / "lake").mkdir()
    with pytest.raises(CriticalQualityError) as raised:
        judge_run(lake, work, manifest, None)
    text = str(raised.value)
    assert "broker 'a', topic 'orders', queue 0" in text
    assert ("This is of 'a' alone: a --store that names only the others archives these meanwhile" in text) == (
        len(brokers) > 1
    )
    assert "'--no-quality' archives all as it is" in text
