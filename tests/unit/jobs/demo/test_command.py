"""Tests that the demo's lake has the history of lag that the documentation describes."""

from __future__ import annotations

import datetime
from pathlib import Path

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.demo.command import OffsetHistory
from commitlake.jobs.lag import command as lag
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.lag.group_summaries import find_stalled_since, summarize_by_group
from commitlake.pipelines.lag.history import lag_history
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag.verdicts import LagVerdict
from tests.support.lakes import archive_store


def test_the_mail_service_stops_six_hours_before_the_end(tmp_path: Path) -> None:
    store, lake = tmp_path / "broker-a" / "store", Lake(str(tmp_path / "lake"))
    offsets = OffsetHistory(Config(str(store), lake, broker="broker-a"))
    shop = fill_shop_store(store, orders=60, pause=offsets.read_offsets)
    archive_store(store, lake, "broker-a")
    offsets.read_offsets()
    offsets.append_to_lake()
    end = datetime.datetime.fromtimestamp(shop.end_ms / 1000, datetime.UTC)
    history = lag_history(lake, ["mail-service"], end)
    assert history is not None
    known = [count for count in history.messages["mail-service"] if count is not None]
    assert len(known) == 24
    assert known[-3] == 0 < known[-2] < known[-1]
    worst = summarize_by_group(lag_of_lake(lake, None).rows)[0]
    assert (worst.group, worst.verdict) == ("mail-service", LagVerdict.STALLED)
    since = find_stalled_since(lake, worst.worst_row)
    assert since is not None
    assert datetime.timedelta(hours=3) < end - since <= datetime.timedelta(hours=6)
    page = tmp_path / "lag.html"
    assert lag.main(["--lake", lake.root, "--html", str(page), "--quiet"]) == 0
    assert ", not moving since " in page.read_text()
    before = summarize_by_group(lag_of_lake(lake, end - datetime.timedelta(hours=9)).rows)
    assert {one.verdict for one in before} == {LagVerdict.OK}
