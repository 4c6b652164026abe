"""Faults while HBase follows: after the next run its cells equal those of an undisturbed run."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.hbase.tables import open_or_create_table
from commitlake.connectors.hbase.update_result import HBaseUpdate
from commitlake.connectors.lake.lake import Lake
from tests.servers.hbase import HBase
from tests.support.hbase_cells import all_cells, hbase_rows
from tests.support.hbase_tables import append, delta_rows, message_rows, rare_rows
from tests.support.waiting import let_pass, wait_until

SEED = 20_261_121
KILLS = 5
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose table of messages takes several seconds to load."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    append(lake.uri("messages"), message_rows(6000))
    return lake


class _Following:
    """A follower in a thread."""

    def __init__(self, lake: Lake, options: HBaseOptions) -> None:
        self._lake, self._options = lake, options
        self.followed: HBaseUpdate | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.followed = follow_messages(None, self._lake, self._options)
        except Exception as error:  # noqa: BLE001 (handed to the test)
            self.error = error

    def wait_until_it_writes(self, rows: int) -> None:
        with Client(self._options) as client:

            def are_written() -> bool:
                assert self.followed is None, "the run was over before anything was killed"
                return sum(len(page) for page in client.scan(b"", b"\xff", page_rows=500)) >= rows

            wait_until(lambda: client.options.table in client.list_tables())
            wait_until(are_written)
        assert self.followed is None, "the run was over before anything was killed"

    def finish(self) -> HBaseUpdate:
        self._thread.join(300)
        if self.error is not None:
            raise self.error
        assert self.followed is not None
        return self.followed


def _small_calls(options: HBaseOptions) -> HBaseOptions:
    """Return options with small calls, so that a run lasts long enough to be disturbed."""
    return replace(options, batch_rows=10, timeout_ms=30_000)


@pytest.mark.parametrize(
    "restart",
    [
        pytest.param(HBase.restart_thrift, id="thrift"),
        pytest.param(HBase.restart_hbase, id="hbase"),
    ],
)
@pytest.mark.long("a server that is down for longer is survived each time")
def test_following_completes_after_a_server_is_restarted_during_writes(
    hbase: HBase, lake: Lake, options: HBaseOptions, restart: Callable[[HBase], None]
) -> None:
    following = _Following(lake, _small_calls(options))
    following.wait_until_it_writes(500)
    restart(hbase)
    assert following.finish().rows == 6000
    assert hbase_rows(options) == delta_rows(lake.uri("messages"))


def test_following_fails_while_thrift_is_down_and_then_catches_up(
    hbase: HBase, lake: Lake, options: HBaseOptions
) -> None:
    hbase.kill_thrift()
    try:
        with pytest.raises(HBaseError, match=r"Thrift server 127\.0\.0\.1:\d+ gave no answer .* within 2 s"):
            follow_messages(None, lake, replace(options, connect_seconds=2))
    finally:
        hbase.start_thrift()
    follow_messages(None, lake, options)
    assert hbase_rows(options) == delta_rows(lake.uri("messages"))


@pytest.mark.long("HBase starts again; its Thrift server goes down and comes back each time")
def test_following_fails_when_hbase_goes_down_and_then_catches_up(
    hbase: HBase, lake: Lake, options: HBaseOptions
) -> None:
    """HBase's Thrift server stays up, and does not answer."""
    following = _Following(lake, replace(_small_calls(options), timeout_ms=2000, retry_seconds=5))
    following.wait_until_it_writes(500)
    hbase.kill_hbase()
    try:
        with pytest.raises(
            HBaseError, match=r"gave no answer to 'write' .* within 5 s: .* next run continues from there"
        ):
            following.finish()
    finally:
        hbase.start_hbase()
    follow_messages(None, lake, options)
    assert hbase_rows(options) == delta_rows(lake.uri("messages"))


@pytest.mark.long("its Thrift server goes down and comes back each time")
def test_following_completes_after_kills_at_random_moments(hbase: HBase, options: HBaseOptions, tmp_path: Path) -> None:
    """Seeded: each run is killed after a part of the time that an undisturbed one takes."""
    chance = random.Random(SEED)
    lake = Lake(str(tmp_path))
    uri = lake.uri("messages")
    append(uri, message_rows(2000))
    undisturbed = replace(options, table=options.table + "_undisturbed")
    began = time.monotonic()
    subprocess.run(_follow_once(hbase, lake, undisturbed), cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=300)
    seconds = time.monotonic() - began
    killed = 0
    for number in range(KILLS):
        with subprocess.Popen(_follow_once(hbase, lake, options), cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # until then nothing happens but imports
            let_pass(chance.uniform(0, seconds / 2), "the run is killed at any moment")
            process.kill()
            killed += process.wait() != 0
        if number == 1:
            append(uri, rare_rows())
        if number == 2:
            DeltaTable(uri).delete("topic = 'orders'")
            append(uri, message_rows(1500, first=2000))
        if number == 3:
            DeltaTable(uri).optimize.compact()
            append(uri, message_rows(1500, first=3500))
    assert killed > 0
    anew = replace(options, table=options.table + "_anew")
    for each in (options, undisturbed, anew):
        follow_messages(None, lake, each)
    assert hbase_rows(options) == delta_rows(lake.uri("messages"))
    assert all_cells(options) == all_cells(undisturbed) == all_cells(anew)


def _follow_once(hbase: HBase, lake: Lake, options: HBaseOptions) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.integration.hbase.follow_once",
        lake.root,
        str(hbase.thrift_port),
        options.table,
    ]


@pytest.mark.long("a cluster of its own; the servers of the others die each time")
def test_following_completes_while_a_region_server_dies_and_restarts(tmp_path: Path, lake: Lake) -> None:
    """The regions of the dead server move to the other one, which replays its log."""
    with HBase(tmp_path / "hbase", heap_mb=384, region_servers=2) as cluster, cluster.thrift2() as thrift2_port:
        options = HBaseOptions(
            host="127.0.0.1", port=cluster.thrift_port, salts=4, regions=4, thrift2_port=thrift2_port
        )
        with Client(options) as client:
            open_or_create_table(client)
        following = _Following(lake, _small_calls(options))
        following.wait_until_it_writes(500)
        cluster.kill_region_server(0)
        let_pass(2, "its regions move")
        cluster.start_region_server(0)
        assert following.finish().rows == 6000
        assert hbase_rows(options) == delta_rows(lake.uri("messages"))
