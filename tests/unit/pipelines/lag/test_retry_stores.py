"""The lag of a JMQ store has a row for each group and queue with messages in the retry store."""

from __future__ import annotations

import datetime
from pathlib import Path

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive.command import main as archive
from commitlake.pipelines.lag.store_lag import LagAnswer, lag_of_lake, lag_of_store
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import EPOCH, MILLISECOND
from tests.support.jmq_consumers import JmqShop
from tests.support.small_stores import Clock


def stored(answer: LagAnswer) -> list[tuple[str, str, int, float, str]]:
    assert answer.missing == []
    rows = [row for row in answer.rows if row.kind == "retry_store"]
    return [(row.group, row.topic, row.queue_id, row.messages.low, row.notes[-1]) for row in rows]


def test_what_waits_is_behind_once_it_is_due(tmp_path: Path) -> None:
    shop = JmqShop(tmp_path, Clock())
    shop.send(0, 6)
    for app in ("mail", "stock"):
        shop.consume(app, 2, fails=lambda _: True)
    for _ in range(8):
        shop.retry("stock", succeeds=False)
    assert archive(["--store", str(shop.store), "--lake", shop.lake.root, "--local", "--quiet"]) == ExitCode.OK
    (store,) = find_stores(str(shop.store), None, formats=all_formats())
    failed = EPOCH + shop.clock.now_ms * MILLISECOND - datetime.timedelta(days=8)
    early, late = (lag_of_store(store, failed + datetime.timedelta(seconds=one)) for one in (0, 9))
    dead = ("stock", "orders", 0, 0, "in the retry store; 0 more wait; 2 dead letters")
    due = "in the retry store; 2 more wait, the next is due 2023-11-14 22:13:21"
    assert stored(early) == [("mail", "orders", 0, 0, due), dead]
    assert stored(late) == [("mail", "orders", 0, 2, "in the retry store; 0 more wait"), dead]
    assert stored(lag_of_store(store, failed, Selection(groups=["stock"]))) == [dead]
    assert stored(lag_of_lake(shop.lake, None))[1] == dead
    assert stored(lag_of_lake(shop.lake, failed + datetime.timedelta(days=9000))) == []
