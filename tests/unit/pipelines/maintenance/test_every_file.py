"""Each file of each table, in a lake whose earlier versions are gone, with the store at hand."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.lake.delta import delta_table
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.snapshot.append import append_progress
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.repairs import archive_run, contents, forget_earlier_versions
from tests.support.table_damages import damage

HISTORIES = ("store_config", "consumer_offsets", "archive_runs", "erasures")
"""Tables with rows that no store has: earlier settings, snapshots, and when runs and erasures were."""
COMPARED = ("messages", "message_keys", "edges", "topic_minutes")
TABLES = (*COMPARED, "quarantine", "profiles", *HISTORIES)
LONG = pytest.mark.long("each reads a lake and its store again")
FAST = {("profiles", "file"), ("messages", "entry")}
LATER = datetime.datetime(2023, 11, 18, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with a damaged record, a snapshot and an erasure, merged, and without any earlier version."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    messages = shop_messages(60, days=2)
    messages[40] = replace(messages[40], topic="%DLQ%g")  # a record with a step
    for number, first in enumerate(range(0, len(messages), 20)):
        growing.configure(number + 1)
        growing.write(messages[first : first + 20])
        if number == 1:  # its CRC does not match any more
            growing.log[growing.log.index(messages[30].body)] ^= 1
            growing.write([])
        archive_run(growing)
    offsets = {OffsetOwner(OffsetKind.GROUP, "g", "topic-00", 0): 1}
    append_progress(growing.lake, StoreSnapshot("broker-a", SnapshotSource.FILE, {OffsetKind.GROUP: LATER}, offsets))
    asked = ["--key", "order-3", "--reason", "asked", "--yes", "--quiet"]
    assert erase.main(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    forget_earlier_versions(growing.lake)
    return growing


def bad_ranges(growing: GrowingLake) -> list[dict[str, object]]:
    """Return the rows of `quarantine`, without the store's path, and bytes that may be of an erased message."""
    names = ["broker", "start_offset", "end_offset", "reason", "run_id"]
    rows: list[dict[str, object]] = delta_table(growing.lake.quarantine).to_pyarrow_table(columns=names).to_pylist()
    return rows


def run_audit(growing: GrowingLake) -> int:
    return audit.main(["--lake", growing.lake.root, "--local", "--deep", "--store", str(growing.store)])


def test_the_lake_has_all_these_tables_and_is_sound(whole: GrowingLake) -> None:
    rows = contents(whole.lake, *TABLES)
    assert all(rows.values()), [table for table, found in rows.items() if not found]
    assert run_audit(whole) == ExitCode.OK


@pytest.mark.parametrize(
    ("table", "what"),
    [
        pytest.param(table, what, marks=() if (table, what) in FAST else LONG)
        for table in TABLES
        for what in ("file", "entry", "checkpoint")
    ],
)
def test_each_file_is_restored_with_the_store(
    whole: GrowingLake, tmp_path: Path, table: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = whole.copy_to(tmp_path)
    uri = getattr(growing.lake, table)
    if what == "checkpoint":
        delta_table(uri).create_checkpoint()
    paths = {"file": "[!_]*.parquet", "entry": "_delta_log/*.json", "checkpoint": "_delta_log/*.checkpoint.parquet"}
    found = sorted(map(Path, delta_table(uri).file_uris())) if what == "file" else sorted(Path(uri).glob(paths[what]))
    damage(found[-1], "deleted" if what == "file" else "cut")
    code = maintain.main(["--lake", growing.lake.root, "--repair", "--store", str(growing.store)])
    printed = capsys.readouterr()
    is_history = table in HISTORIES and what != "checkpoint"
    assert code == ExitCode.OK or (is_history and f"not recovered: {table}" in printed.err), printed.err
    archive_run(growing)
    assert contents(growing.lake, *COMPARED) == contents(whole.lake, *COMPARED)
    assert bad_ranges(growing) == bad_ranges(whole)
    capsys.readouterr()
    assert run_audit(growing) == ExitCode.OK or is_history, capsys.readouterr().out
    assert maintain.main(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
