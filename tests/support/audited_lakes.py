"""Small lakes to audit, and ways to damage them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.quality.expectation_input import RunFacts
from commitlake.pipelines.quality.report import QualityReport
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.jmq_stores import write_jmq_store
from tests.support.lakes import GrowingLake, shop_messages

Row = dict[str, Any]
Damage = Callable[[Path], object]
ROWS = 120
"""Number of messages of each run of `write_lake`, each in a separate window."""
_MESSAGES = arrow_schema(MESSAGES)


def write_lake(root: Path, counted: Sequence[bool] = (True, True)) -> Path:
    """Create a folder with a store, `broker-a`, and a lake of several runs; a record of the last run is damaged.

    Args:
        root: the folder.
        counted: whether each run leaves a profile.
    """
    growing = GrowingLake(root)
    for seed, quality in enumerate(counted):
        growing.write(shop_messages(ROWS, days=3, seed=seed))
        if seed == len(counted) - 1:
            growing.log[-50] ^= 1  # in the body
            growing.write([])
        run_archive(HERE, Config(str(growing.store), growing.lake, quality=quality, judge=judge_nothing))
    return root


class _NoJudge:
    """A judge that finds nothing."""

    def add_profile_part(self, profile_part: pa.Table) -> None:
        """Ignore a profile."""

    def make_report(self) -> QualityReport:
        """Return an empty report."""
        return QualityReport([], datetime.datetime.now(datetime.UTC))


def judge_nothing(_: RunFacts) -> _NoJudge:
    """Skip the check of expectations, which takes seconds to load; profiles are still written."""
    return _NoJudge()


def write_jmq_lake(root: Path) -> Path:
    """Create the same for a JMQ store, with one run."""
    store = write_jmq_store(root / "broker-a", 200)
    run_archive(HERE, Config(str(store), Lake(str(root / "lake")), judge=judge_nothing))
    return root


def change_messages(root: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    """Replace the rows of `messages` by a function's result, by physical offset."""
    table = DeltaTable(str(root / "lake" / "messages"))
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["physical_offset"])
    write_deltalake(table, pa.Table.from_pylist(change(rows), schema=_MESSAGES), mode="overwrite")


def change_each_column(rows: list[Row]) -> list[Row]:
    """Change every column once in one row, and set it to null in another row."""
    names = [name for name in MESSAGES.names if name not in ("broker", "physical_offset")]
    for number, name in enumerate(names):
        rows[number][name] = _other(name, rows[number][name])
        rows[len(names) + number][name] = None
    rows[-1]["broker"], rows[-2]["physical_offset"] = "broker-z", 1 << 40
    return rows


def _other(name: str, value: Any) -> Any:
    kind = _MESSAGES.field(name).type
    if pa.types.is_string(kind):
        return f"{value}\u00fc"
    if pa.types.is_map(kind):
        return [*value, ("one", "more")]
    if pa.types.is_list(kind):
        return [*(value or ()), "more"]
    if pa.types.is_struct(kind):
        return {**value, "offset": value["offset"] + 1}
    if pa.types.is_integer(kind):
        return (value or 0) + 1
    return value + datetime.timedelta(days=1)


def flip_in_pack(root: Path) -> None:
    """Change a bit of the second pack."""
    pack = sorted((root / "lake" / "bodies").rglob("*.zst"))[1]
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0x10
    pack.write_bytes(data)


def delete_pack(root: Path) -> None:
    """Delete the first pack."""
    min((root / "lake" / "bodies").rglob("*.zst")).unlink()


def lose_keys(root: Path) -> None:
    """Delete some keys, and add one without a message."""
    table = DeltaTable(str(root / "lake" / "message_keys"))
    rows = table.to_pyarrow_table()
    write_deltalake(table, pa.concat_tables([rows.slice(9), rows.slice(20, 1)]), mode="overwrite")


def audit_json(
    root: Path, capsys: pytest.CaptureFixture[str], *more: str, store: str = "{broker}"
) -> tuple[int, list[dict[str, Any]]]:
    """Audit the lake in a folder against its stores, and return the exit code and the JSON output."""
    capsys.readouterr()
    arguments = ["--lake", str(root / "lake"), "--store", str(root / store), "--quiet", "--output", "json"]
    code = audit.main([*arguments, *more])
    return code, json.loads(capsys.readouterr().out)["rows"]
