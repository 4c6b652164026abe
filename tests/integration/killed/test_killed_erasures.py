"""Erasures that are killed at any moment: run again, each completes, and nothing else has changed."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.packs.body_reader import COLUMNS, fetch_body
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.archive_processes import ROOT, begin, kill
from tests.support.erased_lakes import archive, shop_message, traces
from tests.support.kills import kill_count
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.waiting import let_pass

LONGEST_SECONDS = 2.5


def secret_message(number: int) -> NewMessage:
    """Return a message of a round, with the round's own canary in its properties and its body."""
    mark = f"CANARY{number:03}X"
    properties = (("KEYS", f"order-{mark}"), ("UNIQ_KEY", f"7F{mark}"), ("phone", f"{mark}-0151"))
    return new_message(number, topic=f"topic-{number % 2}", body=f"{mark} and more".encode(), properties=properties)


@pytest.mark.kills
@pytest.mark.timeout(3600)
def test_an_erasure_completes_however_often_it_is_killed(tmp_path: Path) -> None:
    rounds = kill_count(3)
    chance = random.Random(4711)
    growing = GrowingLake(tmp_path)
    for number in range(rounds):
        growing.write([shop_message(2 * number), secret_message(number)])
        if number % 10 == 9 or number == rounds - 1:
            archive(growing)
    root = Path(growing.lake.root)
    for number in range(rounds):
        mark = f"CANARY{number:03}X"
        arguments = [str(root), f"order-{mark}"]
        command = [sys.executable, "-m", "tests.integration.killed.erasing", *arguments]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            begin(process)
            let_pass(chance.random() * LONGEST_SECONDS, "it is killed at any moment")
            kill(process)
        again = ["--lake", str(root), "--key", f"order-{mark}", "--reason", "a test", "--yes", "--now", "--quiet"]
        assert erase.main(again) == ExitCode.OK
        assert traces(root, mark) == []
        check_others(growing, rounds, number + 1)
    assert audit.main(["--lake", str(root), "--store", str(growing.store), "--local", "--threads", "1"]) == ExitCode.OK


def check_others(growing: GrowingLake, rounds: int, erased: int) -> None:
    """Check that all other messages have their bodies, and that the number of rows is unchanged."""
    store = open_pack_store(growing.lake.packs)
    rows = sorted(
        DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().to_pylist(), key=lambda row: row["physical_offset"]
    )
    assert len(rows) == 2 * rounds
    for number, row in enumerate(rows):
        body = fetch_body(store, {name: row[name] for name in COLUMNS})
        if number % 2 == 0:
            assert body == shop_message(number).body
        else:
            assert body == (None if number // 2 < erased else secret_message(number // 2).body)
