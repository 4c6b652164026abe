"""A small store and its lake for tests of lag: messages, offset files, and the output of `lag`."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.lag.command import main
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

WRITTEN_MS = MIDNIGHT_MS + 600_000
"""Time at which the files of progress were written: ten minutes after the first message."""
WRITTEN = datetime.datetime.fromtimestamp(WRITTEN_MS / 1000, datetime.UTC)


def stored(topic: str, second: float, body: bytes = b"body", /, **properties: str) -> NewMessage:
    """Return a message of queue 0 that is stored a number of seconds after midnight."""
    pairs = tuple((name, value) for name, value in properties.items())
    born_timestamp = MIDNIGHT_MS + int(second * 1000)
    return new_message(topic=topic, queue_id=0, body=body, born_timestamp=born_timestamp, properties=pairs)


def put_bytes(store: Path, name: str, data: bytes) -> None:
    """Write a file of a store's folder `config`."""
    path = store / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))


def put_offsets(store: Path, name: str, table: dict[Any, Any]) -> None:
    """Write a file of offsets in the format of brokers."""
    put_bytes(store, name, json.dumps({"offsetTable": table}).encode())


def places_of(growing: GrowingLake) -> dict[str, list[str]]:
    """Archive a store and take a snapshot of it; return the arguments that name lake and store."""
    growing.archive()
    assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return {"lake": ["--lake", growing.lake.root], "store": ["--store", str(growing.store)]}


def lag_rows(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Return the rows that `lag` prints."""
    capsys.readouterr()
    assert main([*arguments, "--all", "--output", "jsonl", "--quiet"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
